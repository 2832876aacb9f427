"""Google's face mesh (Kartynnik et al. 2019, arXiv:1907.06724): 468 points of a face, on OpenVINO.

In: frames and their `Faces`. Out: a `FaceShape` per face, frame px.
Must not know: rows, and how the weights came here.

| module | what it holds |
|---|---|
| weights | the model's file: where it lies, its checksum |
| pixels | the input square of the network |
| network | pixels -> points and score |
| topology | which of the 468 points is what: the 68 points, the axes of the head |
| landmarker | `MeshLandmarker`: input squares of the network, two passes, fallback |
"""
