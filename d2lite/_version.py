"""The version of this kit, which the saved runs name too; the other three packages have the same number."""

__all__ = ["__version__"]

__version__ = "0.2.0"
