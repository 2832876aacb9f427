"""The page of a profile: words, figures, and one file that holds them all."""
