"""Training on what `facefeed.loaders` feeds; Lightning is imported by the modules that need it, never here."""
