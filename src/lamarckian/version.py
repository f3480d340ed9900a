"""The release this is; the build file holds the same number and a test compares them."""

__version__ = "0.1.0"
