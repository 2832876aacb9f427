"""MTCNN with facenet-pytorch's weights and results, several times as fast.

Zhang et al. 2016, "Joint Face Detection and Alignment Using Multitask Cascaded Convolutional Networks".

In: frames, RGB uint8 (H, W, 3). Out: boxes, scores and landmarks in `frame` pixels.
Must not know: tracking, crops, rows.

    frames -> pyramid -> PNet -> windows -> RNet -> windows -> ONet -> boxes, scores, landmarks

| module | what it knows |
|---|---|
| engines | batching of frames, over CPU threads or on a torch device |
| stages | the cascade on whole frames: candidates from PNet to RNet to ONet |
| rois, roi_cascade | the cascade in regions of interest only |
| boxes | arithmetic on boxes, bit for bit facenet's |
| suppression | non-maximum suppression, bit for bit torchvision's and facenet's |
| pyramid | levels of the image pyramid, and the bins of a resize by area |
| cpu | frames on one CPU thread: OpenVINO's networks on pixels from `area_resize` |
| networks | the three networks as OpenVINO graphs |
| weights | facenet-pytorch's weight files |
| area_resize | resize by area, compiled by Numba |
| numba_compile | Numba's options |
| cuda | frames of one size on a torch device: facenet's own modules, windows resized in one gather |

Only `cuda` imports torch, which takes a second, and 300 MB in each worker; the box arithmetic of both engines is NumPy.
Only `pyramid`, `rois` and `weights` are imported before the first frame: Numba and OpenVINO load for a second too.
"""
