"""Figures of the page: contact sheets of faces, pairs of fakes and sources, histograms.

In: statistics of the index, and the images of selected rows. Out: pictures as data URIs, and SVG paths.
Must not know: the terminal's report.
"""
