"""The user's own data of any kind: frames, data sets, files, folders, one per client."""

from poise.data.own.kinds import is_own, names_files, readers_of, with_folder
from poise.data.own.loading import load_own

__all__ = ["is_own", "load_own", "names_files", "readers_of", "with_folder"]
