"""Options and experiment files: what a user may set, declared once, and read with the line of every
mistake.
"""
