"""Tests the Debian packages that cpack makes of this build: the files in each package and its metadata.

scripts/test_package.sh tests installing them."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from support import BINARY, SANITIZED, Case, main

BUILD = pathlib.Path(BINARY).parent.parent


def run(*words, folder=None):
    return subprocess.run(words, check=True, text=True, cwd=folder, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT).stdout


@unittest.skipUnless(shutil.which("dpkg-deb") and shutil.which("dpkg-shlibdeps") and shutil.which("cpack"),
                     "dpkg-dev or cpack is not here")
class Packages(Case):
    @classmethod
    def setUpClass(cls):
        cls.made = pathlib.Path(tempfile.mkdtemp(prefix="brim-packages-"))
        cls.addClassCleanup(shutil.rmtree, cls.made)
        # Does not change the packages in the build's folder.
        run("cpack", "-G", "DEB", "-B", str(cls.made), folder=BUILD)
        cls.files, cls.fields = {}, {}
        for path in cls.made.glob("*.deb"):
            name = path.name.split("_")[0]
            rows = [line.split(None, 5) for line in run("dpkg-deb", "--contents", str(path)).splitlines()]
            cls.files[name] = {row[5][1:].split(" -> ")[0]: row for row in rows if not row[5].endswith("/")}
            text = run("dpkg-deb", "--field", str(path))
            cls.fields[name] = dict(re.findall(r"(?m)^([\w-]+): (.*)$", text))

    def paths(self, name):
        return {re.sub(r"^/usr/lib/[^/]*-linux-gnu[^/]*/", "/usr/lib/", path) for path in self.files[name]}

    def test_the_list_of_packages(self):
        expected = {"libbrim0", "brim", "brim-plugins", "brim-dev"}
        for part, plugins in (("mpi", ("mpi",)), ("cuda", ("cuda", "nccl"))):
            if any(list(BUILD.glob(f"lib/brim/plugins/*/{plugin}.so")) for plugin in plugins):
                expected.add(f"brim-plugins-{part}")
        self.assertEqual(set(self.files), expected)

    def test_the_library_is_there_by_its_version_and_for_the_linker_in_the_headers_package(self):
        library = {path for path in self.paths("libbrim0") if path.startswith("/usr/lib/")}
        self.assertEqual({re.sub(r"0\.\d+\.\d+$", "V", path) for path in library},
                         {"/usr/lib/libbrim.so.0", "/usr/lib/libbrim.so.V"})
        development = self.paths("brim-dev")
        for path in ("/usr/lib/libbrim.so", "/usr/lib/pkgconfig/brim.pc", "/usr/lib/cmake/brim/brim-config.cmake",
                     "/usr/lib/cmake/brim/brim_plugin.cmake", "/usr/include/brim/policy.h"):
            self.assertIn(path, development)

    def test_the_program(self):
        paths = self.paths("brim")
        for path in ("/usr/bin/brim", "/usr/share/brim/configs/config.yaml", "/usr/share/man/man1/brim.1.gz",
                     "/usr/share/bash-completion/completions/brim", "/usr/share/zsh/site-functions/_brim",
                     "/usr/share/fish/vendor_completions.d/brim.fish", "/usr/share/man/man5/brim.yaml.5.gz"):
            self.assertIn(path, paths)
        terminal = {"/usr/lib/brim/terminal/ncurses.so.1"} & {f"/usr/lib/{path.relative_to(BUILD / 'lib')}"
                                                              for path in BUILD.glob("lib/brim/terminal/*")}
        self.assertEqual({path for path in paths if path.startswith("/usr/lib/")}, terminal)

    def test_each_plugin_is_in_one_package(self):
        built = {f"/usr/lib/{path.relative_to(BUILD / 'lib')}" for path in BUILD.glob("lib/brim/plugins/*/*.so")}
        packed = [path for name in self.files for path in self.paths(name) if path.startswith("/usr/lib/brim/plugins/")]
        self.assertEqual(sorted(path for path in packed if path.endswith(".so")), sorted(built))
        for path in self.paths("brim-plugins"):
            self.assertNotRegex(path, r"/comm/|/cuda")

    def test_all_that_is_installed_is_packed(self):
        run("cmake", "--install", str(BUILD), "--prefix", str(self.folder / "usr"))
        root = str(self.folder)
        installed = {os.path.join(path, name)[len(root):] for path, _, names in os.walk(root) for name in names}
        packed = {re.sub(r"\.gz$", "", path) for name in self.files for path in self.paths(name)}
        installed = {re.sub(r"^/usr/lib/[^/]*-linux-gnu[^/]*/", "/usr/lib/", path) for path in installed}
        self.assertEqual(installed - packed, {"/usr/share/doc/brim/LICENSE"})
        own = r"/usr/share/doc/[^/]*/(copyright|changelog\.Debian)$"
        self.assertEqual({path for path in packed - installed if not re.match(own, path)}, set())

    def test_package_metadata_and_dependencies(self):
        for name, fields in self.fields.items():
            with self.subTest(name):
                self.assertRegex(fields["Version"], r"^\d+\.\d+\.\d+-1$")
                self.assertRegex(fields["Description"], r"^neural networks with memory known before training")
                self.assertRegex(fields["Maintainer"], r"^.* <.*@.*>$")
                self.assertIn(f"/usr/share/doc/{name}/copyright", self.files[name])
                self.assertIn(f"/usr/share/doc/{name}/changelog.Debian.gz", self.files[name])
                if name != "libbrim0":
                    self.assertIn(f"libbrim0 (= {fields['Version']})", fields["Depends"])
                if name != "brim-plugins-mpi":
                    self.assertNotRegex(fields["Depends"], "mpi|ucx")
        self.assertRegex(self.fields["libbrim0"]["Depends"], r"libyaml-0-2.*|libjansson4")
        self.assertIn("brim-plugins (=", self.fields["brim"]["Depends"])
        sections = {name: fields["Section"] for name, fields in self.fields.items() if not name.endswith("cuda")}
        self.assertEqual(sections, {"libbrim0": "libs", "brim-dev": "libdevel",
                                    **{name: "science" for name in sections if name not in ("libbrim0", "brim-dev")}})

    def test_no_file_belongs_to_the_building_user(self):
        for name, files in self.files.items():
            for path, row in files.items():
                self.assertEqual(row[1], "root/root", f"{name}: {path}")
                self.assertRegex(row[0], r"^([-d]rw[-x]r-[-x]r-[-x]|l.*)$", f"{name}: {path}")

    @unittest.skipIf(SANITIZED, "sanitizers leave paths in programs")
    def test_the_program_contains_no_path(self):
        run("dpkg-deb", "--extract", str(next(self.made.glob("brim_*.deb"))), str(self.folder))
        self.assertNotRegex(run("readelf", "--dynamic", str(self.folder / "usr" / "bin" / "brim")), "RPATH|RUNPATH")


if __name__ == "__main__":
    main()
