"""Contexts to compress: generated recall tasks, plain text, MRQA questions."""
