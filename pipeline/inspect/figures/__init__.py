"""What the page shows of a dataset: faces, real and fake pairs, histograms.

In: statistics of the index, and the images of selected rows. Out: HTML fragments and embedded pictures.
Must not know: the terminal's report.
"""
