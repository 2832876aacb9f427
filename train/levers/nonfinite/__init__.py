"""Steps whose loss, gradient or statistics are not finite: counted, and stopped when too many come in a row.

In: a module and its optimizer while they train. Out: counts, and `NonFiniteError`.
Must not know: other levers, runs.
"""
