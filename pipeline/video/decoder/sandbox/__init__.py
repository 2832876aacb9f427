"""What the decoder process may do: limits of time and memory, calls of the system, and files.

In: limits, and the folders of the source. Out: a process that is confined, irrevocably, or why the kernel cannot.
Must not know: media, requests.
"""
