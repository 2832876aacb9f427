"""What is measured beside the loader itself: changed settings that explain a verdict, or lead to a better one.

In: a loader, a step, a verdict. Out: measured trials and sweeps.
Must not know: terminals, pages.
"""
