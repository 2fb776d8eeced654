"""Tool calls: tools of the invented world, and ordinary ones under many schemas."""

from . import ordinary
from .islands import lesson

__all__ = ["lesson", "ordinary"]
