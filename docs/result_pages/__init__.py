"""Figures and tables of the results pages, a module for each page."""
