"""MTCNN as facenet-pytorch runs it, from its weights, and faster.

Zhang et al. 2016, "Joint Face Detection and Alignment Using Multitask Cascaded Convolutional Networks".

In: frames, RGB uint8 (H, W, 3). Out: boxes, scores and landmarks in `frame` pixels.
Must not know: tracking, crops, rows.

    frames -> pyramid -> PNet -> windows -> RNet -> windows -> ONet -> boxes, scores, landmarks

| module | what it knows |
|---|---|
| engines | how many frames go together, and through which of the two below |
| stages | the cascade itself, in torch: what goes from one network to the next, for one frame or many |
| rois, roi_cascade | the cascade near places where faces are expected alone: which parts of which levels these are |
| boxes | the arithmetic of windows, facenet's to the last bit |
| pyramid | the levels of the pyramid, and which pixels make up a pixel of it or of a network's input |
| cpu | frames on one thread: OpenVINO's networks, pixels by `area_resize` |
| networks | the three networks as OpenVINO graphs |
| openvino_import | OpenVINO, kept from reporting its use |
| weights | where the weights lie |
| area_resize | resized pixels, compiled by Numba |
| cuda | frames of one size on a torch device: facenet's own modules, all pixels in one gather |

But for `pyramid`, `rois` and `weights` nothing here is imported before the first frame: torch, Numba and OpenVINO take
seconds to load.
"""
