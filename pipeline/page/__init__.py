"""The kit of all HTML pages: the base page, its styles, tables, sections and figures.

In: what a command shows. Out: one HTML file that opens without a network, written atomically.
Must not know: any command, dataset or measurement.
"""
