"""Published results, and those of a PyTorch port, for comparison with the recorded runs."""

# Measured once with a PyTorch port: learning rate 1e-2, cosine schedule, one run per split.
PYTORCH_MSTAR = {
    "closed": (0.967, 0.910, 0.983),
    "softmax": (0.874, 0.610, 0.862),
    "mls": (0.885, 0.594, 0.810),
    "cbc": (0.876, 0.621, 0.863),
    "plain closed": (0.974, 0.923, 0.982),
    "plain softmax": (0.859, 0.624, 0.822),
    "plain mls": (0.819, 0.565, 0.801),
}
PYTORCH_CIFAR10 = {"closed": 0.862, "softmax": 0.744, "mls": 0.765, "cbc": 0.749}
PAPER_TABLE1 = {  # AUROC in percent, (visible, thermal) for each range
    "conflabel_detector": ((72.05, 74.29), (70.69, 72.88), (69.27, 71.39), (68.78, 63.60)),
    "mls": ((95.71, 94.59), (90.83, 93.50), (87.68, 83.73), (91.74, 88.81)),
    "softmax": ((96.10, 94.33), (89.41, 94.94), (89.71, 86.07), (94.66, 92.04)),
    "openmax": ((94.74, 93.85), (90.04, 93.41), (91.57, 87.00), (93.92, 90.80)),
    "cbc": ((98.61, 96.27), (93.28, 96.17), (92.03, 87.52), (94.89, 92.93)),
}
PAPER_TABLE2 = {  # accuracy over six classes in percent; ranges 1000, 3000, combined
    "conflabel_detector": ((61.2, 61.7), (57.3, 57.5), (59.4, 55.2)),
    "mls": ((82.3, 73.8), (74.6, 75.8), (74.8, 72.1)),
    "softmax": ((85.3, 82.8), (79.7, 77.7), (81.1, 78.1)),
    "openmax": ((83.2, 83.2), (81.8, 81.6), (81.6, 81.4)),
    "cbc": ((91.7, 88.6), (81.2, 83.3), (86.3, 86.4)),
}
PAPER_TABLE3 = {"mls": 69.7, "softmax": 67.7, "gopenmax": 67.5, "openmax": 69.5, "cbc": 73.6}
PAPER_TABLE4 = {"bce-entropy": (90.71, 91.60), "cbc": (94.21, 91.88), "full": (94.89, 92.93)}

OPENOOD = {
    "OpenOOD's leaderboard: near, CIFAR-100 and Tiny ImageNet": (
        "95.1",
        "90.6 (k-NN)",
        "88.0",
        "87.5",
    ),
    "OpenOOD's leaderboard: far, MNIST, SVHN, Textures, Places365": (
        "95.1",
        "93.0 (k-NN)",
        "90.7",
        "91.1",
    ),
}
"""OpenOOD 1.5 (Zhang et al. 2023) on CIFAR-10: closed accuracy, and AUROC of k-NN, SoftMax and MLS.

All ten classes are known there, the network is a ResNet-18 that was trained from random weights,
and k is tuned on other images of Tiny ImageNet. So the rows show the order of size, not a contest.
"""
