"""openset"""
