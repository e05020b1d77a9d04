"""Targets in scenes: boxes, suppression, tiles, CFAR, and the measures of detectors.

Arrays go in and come out; nothing here knows a file, a configuration or a network.
"""
