"""Measures a training loop: when each batch was requested, prepared and received, and when each step ended.

In: a loader and a step. Out: a `Recording`.
Must not know: verdicts, advice, reports.
"""
