"""The sandboxed decoder process: all code that parses the bytes of untrusted files.

In: requests with the path of a file, over a pipe. Out: frames, RGB uint8 upright, or one reason why not.
Must not know: faces, rows; all modules but `child` also serve the baseline.

| module | what it holds |
|---|---|
| child | main loop of the process, started by `MediaReader` |
| sandbox/ | what the process may do: time and memory, system calls, files |
| sniffing | opens a file and detects its format, from its first bytes but for motion JPEG |
| video_file, wanted_frames | `VideoFile`: the wanted frames of a video, or the reason why not; which those are |
| demuxer, timeline | opens a video and chooses its stream; times of its frames, without decoding |
| truncation, matroska | whether a file is complete |
| decoding, deinterlace | one pass over a stream; lines of interlaced frames |
| pixels, tone_mapping | upright RGB with square pixels and correct colours; HDR as standard range |
| stills/ | images, and folders of images that are one clip |
"""
