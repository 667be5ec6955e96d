"""The catalogue of data sets: paths, sizes, checksums and addresses of their files."""

from __future__ import annotations

from dataclasses import dataclass

from poise.core.errors import InvalidOption, suggest


@dataclass(frozen=True)
class DataFile:
    """One file of a data set.

    Args:
        path: relative to the data folder.
        size: in bytes; 0 if the publisher states none.
        checksum: ``"sha256:…"``, or ``"md5:…"`` if the publisher states no other.
        addresses: download addresses; empty for a file that was derived from others.
    """

    path: str
    size: int
    checksum: str
    addresses: tuple[str, ...] = ()

    @property
    def algorithm(self) -> str:
        """The algorithm of the checksum.

        >>> DataFile("a/b.gz", 3, "sha256:00").algorithm
        'sha256'
        """
        return self.checksum.partition(":")[0]

    @property
    def digest(self) -> str:
        """The checksum in hexadecimal digits."""
        return self.checksum.partition(":")[2]


@dataclass(frozen=True)
class DatasetEntry:
    """A data set: its description, and alternative sets of files, best first.

    Args:
        name: the name for `poise.federation`.
        about: a description in one line.
        variants: alternative sets of files; poise reads the first complete one.
        fetched: the variant that `fetch` downloads; None if nothing can be downloaded.
        licence: as the publishers state it.
        folder: relative to the data folder, for files that the user makes; they have no
            checksums.
        by_hand: how the user makes such files.
    """

    name: str
    about: str
    variants: tuple[tuple[DataFile, ...], ...]
    fetched: int | None
    licence: str
    folder: str = ""
    by_hand: str = ""


def _idx_files(
    folder: str, mirrors: tuple[str, ...], facts: dict[str, tuple[int, str]]
) -> tuple[DataFile, ...]:
    files = []
    for name, (size, digest) in facts.items():
        addresses = tuple(mirror + name for mirror in mirrors)
        files.append(DataFile(f"{folder}/{name}", size, f"sha256:{digest}", addresses))
    return tuple(files)


MNIST = _idx_files(
    "mnist",
    (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    {
        "train-images-idx3-ubyte.gz": (
            9912422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        "train-labels-idx1-ubyte.gz": (
            28881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        "t10k-images-idx3-ubyte.gz": (
            1648877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        "t10k-labels-idx1-ubyte.gz": (
            4542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    },
)

WRITERS = DataFile(
    "qmnist_labels/qmnist-train-labels-idx2-int.gz",
    463024,
    "sha256:2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f",
    (
        "https://raw.githubusercontent.com/facebookresearch/qmnist/master/"
        "qmnist-train-labels-idx2-int.gz",
    ),
)

FASHION_MNIST = _idx_files(
    "fashion_mnist",
    (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
    {
        "train-images-idx3-ubyte.gz": (
            26421880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        ),
        "train-labels-idx1-ubyte.gz": (
            29515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        ),
        "t10k-images-idx3-ubyte.gz": (
            4422102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        ),
        "t10k-labels-idx1-ubyte.gz": (
            5148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    },
)

CIFAR10_ARCHIVE = DataFile(
    "cifar10/cifar-10-binary.tar.gz",
    170052171,
    "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
)

CIFAR10_SUBSET = DataFile(
    "cifar10/cifar10_20k_4k.npz",
    67859092,
    "sha256:e02e46726b67a1ff9ed2c01d9a8365d572279a26d23d71451599ed5c755b4982",
)

USPS_INTEGERS = DataFile(
    "usps/usps.npz",
    1664471,
    "sha256:8a558e74d6716dd4f3a84e66e356621ffd1f7b7b664a9816647041d5121dc197",
)

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/"

USPS_LIBSVM = (
    DataFile(
        "usps/usps.bz2",
        0,
        "md5:ec16c51db3855ca6c91edd34d0e9b197",
        (_LIBSVM + "usps.bz2",),
    ),
    DataFile(
        "usps/usps.t.bz2",
        0,
        "md5:8ea070ee2aca1ac39742fdd1ef5ed118",
        (_LIBSVM + "usps.t.bz2",),
    ),
)

SHAKESPEARE = DataFile(
    "shakespeare/shakespeare_roles.json.gz",
    1798816,
    "sha256:5a379985d198b8333d945f7a284de2a88b85e2d4aaf35531834f7d0f23c25ffb",
)

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/"

HOSPITALS = {
    name: DataFile(
        f"heart_disease/processed.{name}.data",
        size,
        f"sha256:{digest}",
        (f"{_UCI}processed.{name}.data",),
    )
    for name, size, digest in (
        (
            "cleveland",
            18461,
            "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
        ),
        (
            "hungarian",
            10263,
            "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
        ),
        (
            "switzerland",
            4109,
            "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
        ),
        (
            "va",
            6737,
            "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
        ),
    )
}

LEAF = DatasetEntry(
    "leaf",
    (
        "FEMNIST in LEAF's format, one client per user; made by LEAF's preprocess.sh, not "
        "fetched"
    ),
    variants=(),
    fetched=None,
    licence="LEAF: BSD 2-clause; FEMNIST: NIST Special Database 19",
    folder="leaf/femnist",
    by_hand=(
        "run LEAF's data/femnist/preprocess.sh (github.com/TalwalkarLab/leaf) and "
        "put its "
        "folders train and test into leaf/femnist of the data folder, or pass their "
        "folder as folder="
    ),
)

CATALOGUE: dict[str, DatasetEntry] = {
    entry.name: entry
    for entry in (
        DatasetEntry(
            "cifar10",
            (
                "CIFAR-10, ten classes of 32x32 colour images; all, or a subset of 20,000 "
                "+ 4,000"
            ),
            ((CIFAR10_ARCHIVE,), (CIFAR10_SUBSET,)),
            0,
            "none stated ([Krizhevsky 2009], asks for citation)",
        ),
        DatasetEntry(
            "fashion-mnist",
            "Fashion-MNIST, ten classes of 28x28 images",
            (FASHION_MNIST,),
            0,
            "MIT",
        ),
        DatasetEntry(
            "heart-disease",
            "UCI Heart Disease, four hospitals, 740 complete records",
            (tuple(HOSPITALS.values()),),
            0,
            "CC BY 4.0, doi:10.24432/C52P4X",
        ),
        LEAF,
        DatasetEntry(
            "mnist",
            "MNIST digits, 28x28, with the writer of each training digit (QMNIST)",
            ((*MNIST, WRITERS),),
            0,
            "LeCun, Cortes, Burges; writers: BSD style",
        ),
        DatasetEntry(
            "shakespeare",
            "lines of 1,342 roles in 37 plays, derived from the public-domain text",
            ((SHAKESPEARE,),),
            None,
            "public domain",
        ),
        DatasetEntry(
            "usps",
            "USPS digits, 16x16",
            ((USPS_INTEGERS,), USPS_LIBSVM),
            1,
            "none stated",
        ),
    )
}


def entry(name: str) -> DatasetEntry:
    """Return the catalogue's entry of a data set.

    >>> entry("usps").fetched
    1
    """
    if name in ("digits", "synthetic"):
        raise InvalidOption(
            f"{name} has no files", f'use it as it is: source = "{name}"'
        )
    if name not in CATALOGUE:
        raise InvalidOption(f"there is no data set {name!r}", suggest(name, CATALOGUE))
    return CATALOGUE[name]
