"""Tests the layers of core/: a file includes and calls only files in its own folder and in those below it, and cycles
of files are small."""

import pathlib
import shutil
import subprocess

from support import BINARY, Case, main

# For each folder of core/, a folder of links to the folders that it may use.
HEADERS = pathlib.Path(BINARY).parent.parent / "core"
SOURCE = pathlib.Path(__file__).resolve().parents[2] / "core"


CIRCLE_MAX = 3  # the most files of a folder that may call each other, directly or through others


def calls():
    """Returns, for each file of core/, the files whose functions or data it uses, from the symbols of the objects."""
    defined, wanted = {}, {}
    for folder in (HEADERS.parent / "CMakeFiles").glob("brim_core_*.dir"):
        paths = [str(path) for path in folder.glob("core/**/*.o")]
        command = ["nm", "--print-file-name", *paths]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout if paths else ""
        for line in listed.splitlines():
            path, _, rest = line.partition(":")
            *_, kind, symbol = rest.split()
            file = pathlib.Path(path).relative_to(folder / "core").as_posix().removesuffix(".o")
            if not (SOURCE / file).exists():
                continue  # an earlier build left this object
            wanted.setdefault(file, set())
            if kind == "U":
                wanted[file].add(symbol)
            elif kind.isupper():
                defined[symbol] = file
    return {file: {defined[s] for s in symbols if s in defined} - {file} for file, symbols in wanted.items()}


def reach(calls_of, file):
    found, rest = set(), [file]
    while rest:
        new = calls_of[rest.pop()] - found
        found |= new
        rest += new
    return found


class Folders(Case):
    def compiles(self, folder, header):
        """Returns True if a file of the folder that includes the header compiles."""
        file = self.folder / "x.c"
        file.write_text(f'#include "{header}"\n')
        words = ["-fsyntax-only", "-D_GNU_SOURCE", f"-I{HEADERS / folder}", f"-I{SOURCE / 'include'}", str(file)]
        return subprocess.run([shutil.which("cc"), *words], capture_output=True, check=False).returncode == 0

    def test_an_include_from_a_higher_folder_does_not_compile(self):
        for folder, below, above in (("graph", "base/text.h", "config/settings.h"),
                                     ("config", "param/yaml.h", "drive/drive.h"),
                                     ("train", "drive/drive.h", "report/page.h")):
            self.assertTrue(self.compiles(folder, below), (folder, below))
            self.assertFalse(self.compiles(folder, above), (folder, above))

    def test_every_folder_is_one_of_them_and_none_sees_one_that_sees_it(self):
        folders = {path.name for path in SOURCE.iterdir() if path.is_dir()} - {"include"}
        self.assertEqual({path.name for path in HEADERS.iterdir()}, folders)
        sees = {folder: {path.name for path in (HEADERS / folder).iterdir()} - {folder} for folder in folders}
        for folder, below in sees.items():
            for other in below:
                self.assertNotIn(folder, sees[other])

    def test_no_file_calls_a_folder_that_its_own_does_not_see(self):
        calls_of = calls()
        self.assertGreater(len(calls_of), 200)
        wrong = [(file, other) for file, others in calls_of.items() for other in others
                 if not (HEADERS / file.split("/")[0] / other.split("/")[0]).exists()]
        self.assertEqual(wrong, [])

    def test_circles_of_files_are_small(self):
        calls_of = calls()
        reached = {file: reach(calls_of, file) for file in calls_of}
        circles = {tuple(sorted(other for other in reached[file] if file in reached[other])) for file in calls_of}
        self.assertEqual([circle for circle in circles if len(circle) > CIRCLE_MAX], [])


if __name__ == "__main__":
    main()
