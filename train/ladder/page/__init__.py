"""The page of a ladder."""
