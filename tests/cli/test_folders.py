"""The folders of core/: what is not below a folder, its files cannot include."""

import pathlib
import shutil
import subprocess

from support import BINARY, Case, main

HEADERS = pathlib.Path(BINARY).parent.parent / "core"  # of each folder, those that it sees
SOURCE = pathlib.Path(__file__).resolve().parents[2] / "core"


class Folders(Case):
    def compiles(self, folder, header):
        """Does a file of the folder compile that includes the header?"""
        file = self.folder / "x.c"
        file.write_text(f'#include "{header}"\n')
        words = ["-fsyntax-only", "-D_GNU_SOURCE", f"-I{HEADERS / folder}", f"-I{SOURCE / 'include'}", str(file)]
        return subprocess.run([shutil.which("cc"), *words], capture_output=True, check=False).returncode == 0

    def test_an_include_of_what_is_above_does_not_compile(self):
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


if __name__ == "__main__":
    main()
