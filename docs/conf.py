"""Sphinx's configuration: `make docs` builds the pages, and any warning is an error."""

from importlib import metadata

project = "facefeed"
release = metadata.version("facefeed")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx_click"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "facefeed"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_copyright = False
html_show_sourcelink = False
smartquotes = False  # code in docstrings keeps its quotes

myst_heading_anchors = 3  # GitHub's anchors, so that links work in both places
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
default_role = "code"  # docstrings write `name` as Markdown does
