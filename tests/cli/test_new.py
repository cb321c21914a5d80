"""Tests brim new, which creates a plugin's folder completely or not at all. tests/abi/new.cmake builds and uses the
result."""

import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess

from support import BINARY, DONE, LOAD, USAGE, Case, main

GROUPS = {"dataset": "dataset", "model": "model", "policy": "policy", "selector": "method",  # by kind
          "aggregator": "aggregator", "optimizer": "optimizer", "schedule": "schedule", "loss": "loss",
          "augment": "augmentation"}
LINES_MAX = 59  # lines of a plugin


class New(Case):
    def made(self):
        """Returns all files below the test's folder."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())

    def refused(self, *words, status=USAGE):
        result = self.brim("new", *words, status=status)
        self.assertEqual(result.out, "", result)
        return result.err

    # ---- created folders ----

    def test_each_kind_is_a_short_plugin_with_all_that_belongs_to_it(self):
        for kind, group in GROUPS.items():
            self.brim("new", kind, "mine", "--into", ".")
            self.assertEqual(self.made(), ["mine/CMakeLists.txt", "mine/README.md", f"mine/configs/{group}/mine.yaml",
                                           "mine/mine.c"])
            for path in self.made():
                self.assertNotRegex(self.read(path), "@NAME@|NAME[^S ]", path)
            code = self.read("mine", "mine.c").splitlines()
            self.assertLessEqual(len(code), LINES_MAX, kind)
            self.assertLessEqual(max(map(len, code)), 120, kind)
            shutil.rmtree(self.folder / "mine")

    def test_it_is_made_in_the_folder_that_is_named(self):
        os.mkdir(self.folder / "my plugins")
        result = self.brim("new", "model", "net", "--into", "my plugins/")
        self.assertIn("my plugins/net/net.c", self.made())
        self.assertIn("\n  cd 'my plugins/net'\n", result.out)

    def test_commands_are_those_of_the_readme_for_this_brim(self):
        result = self.brim("new", "model", "net", env={"PATH": "/usr/bin:/bin"})
        block = re.search("```sh\n(.*?)```", self.read("net", "README.md"), re.DOTALL).group(1)
        prefix = pathlib.Path(BINARY).resolve().parent.parent
        reported = block.replace("cmake -B build", f"cmake -B build -DCMAKE_PREFIX_PATH={prefix}", 1)
        reported = reported.replace("brim train", f"{pathlib.Path(BINARY).resolve()} train")
        self.assertEqual([line.strip() for line in result.out.split("\n\n", 1)[1].splitlines()],
                         ["cd net", *reported.splitlines()])

    def test_on_the_path_brim_is_brim_and_found_by_cmake(self):
        folder = pathlib.Path(BINARY).resolve().parent
        result = self.brim("new", "model", "net", env={"PATH": f"{folder}:/usr/bin:/bin"})
        self.assertIn("\n  cmake -B build\n", result.out)
        self.assertIn("\n  brim train ", result.out)
        # the shell finds brim through a link, but CMake would look next to the link
        os.mkdir(self.folder / "bin")
        os.symlink(BINARY, self.folder / "bin" / "brim")
        result = self.brim("new", "model", "other", env={"PATH": f"{self.folder}/bin:{folder}"})
        self.assertIn(f"\n  cmake -B build -DCMAKE_PREFIX_PATH={folder.parent}\n", result.out)
        self.assertIn("\n  brim train ", result.out)

    # ---- refusals ----

    def test_nothing_is_written_over(self):
        self.brim("new", "policy", "polite")
        (self.folder / "polite" / "polite.c").write_text("mine now\n", encoding="utf-8")
        self.assertIn("'polite' exists already: nothing was written", self.refused("policy", "polite"))
        self.assertEqual(self.read("polite", "polite.c"), "mine now\n")
        for make in (os.mkdir, lambda path: os.symlink("nowhere", path), lambda path: path.write_text("a file")):
            make(self.folder / "taken")
            self.assertIn("'taken' exists already", self.refused("policy", "taken"))
            if (self.folder / "taken").is_dir():
                os.rmdir(self.folder / "taken")
            else:
                os.remove(self.folder / "taken")

    def test_names_are_ids_of_plugins(self):
        for name, meant in (("Night-Shift", "night_shift"), ("my net", "my_net"), ("x" * 65, None), ("", None),
                            ("a/b", None), ("é", None)):
            said = self.refused("model", name)
            self.assertIn(f"'{name}' cannot be a plugin's name: use 1 to 64 characters from a-z, 0-9 and _",
                          said)
            self.assertEqual("did you mean" in said, meant is not None, said)
            self.assertIn(f"did you mean '{meant}'?" if meant else "", said)
        for name in ("id", "null"):
            self.assertIn(f"'{name}' cannot be a plugin's name: it has another meaning", self.refused("policy", name))
        self.assertEqual(self.made(), [])

    def test_a_taken_name_is_refused_with_its_owner(self):
        self.assertRegex(self.refused("model", "mlp"), "model=mlp exists already, in .*/model/mlp.so")
        self.assertRegex(self.refused("selector", "topk_loss"), "method=topk_loss exists already, in .*loss.so")
        self.assertIn("method=random exists already, in brim itself", self.refused("selector", "random"))
        self.assertRegex(self.refused("model", "gpt2_tiny"),
                         "model=gpt2_tiny exists already, in .*/model/gpt2_tiny.yaml")
        self.brim("new", "dataset", "mlp")  # a plugin of another kind has this name

    def test_wrong_words_are_answered_with_the_valid_ones(self):
        self.assertIn("there is no template for 'polcy'; available: aggregator, augment, dataset, loss, model, "
                      "optimizer, policy, schedule, selector\n  did you mean 'policy'?", self.refused("polcy", "x"))
        self.assertIn("brim new takes a kind and a name", self.refused("policy"))
        self.assertIn("unexpected 'b'", self.refused("policy", "a", "b"))
        self.assertIn("--into nowhere: there is no such folder", self.refused("policy", "a", "--into", "nowhere"))

    def test_a_folder_that_cannot_be_made_is_named(self):
        os.mkdir(self.folder / "locked", 0o555)
        result = self.brim_as_user("new", "policy", "a", "--into", "locked", status=USAGE)
        self.assertIn("cannot make the folder 'locked/a': Permission denied", result.err)

    def test_all_of_it_is_there_or_nothing(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # enough for a CMakeLists.txt, not for a plugin

        process = subprocess.run([BINARY, "new", "policy", "a"], cwd=self.folder, capture_output=True, text=True,
                                 check=False, preexec_fn=limit)
        self.assertNotEqual(process.returncode, DONE)
        self.assertRegex(process.stderr, "cannot write '.*': File too large")
        self.assertEqual(list(self.folder.iterdir()), [])

    def refused_by_bare(self, prefix):
        """Returns the error of a brim in a separate prefix that has only the test's templates."""
        os.makedirs(prefix / "bin")
        os.makedirs(prefix / "lib")
        shutil.copy(BINARY, prefix / "bin" / "brim")
        for library in (pathlib.Path(BINARY).resolve().parent.parent / "lib").glob("libbrim.so*"):
            shutil.copy(library, prefix / "lib", follow_symlinks=False)
        process = subprocess.run([prefix / "bin" / "brim", "new", "policy", "a"], cwd=self.folder, text=True,
                                 capture_output=True, check=False,
                                 env={**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")})
        self.assertEqual(process.returncode, LOAD, process.stderr)
        return process.stderr

    def test_a_brim_without_templates_says_so(self):
        self.assertIn("this brim is installed without templates: there is no folder share/brim/templates",
                      self.refused_by_bare(self.folder / "bare"))

    def test_a_template_that_is_too_large_leaves_nothing(self):
        template = self.folder / "bare" / "share" / "brim" / "templates" / "policy"
        (template / "z").mkdir(parents=True)  # the 65th entry, with the folder itself and the files
        for number in range(63):
            (template / f"{number:02}").write_text("")
        self.assertIn("the template has more than 64 files and folders", self.refused_by_bare(self.folder / "bare"))
        self.assertEqual([path.name for path in self.folder.iterdir()], ["bare"])


if __name__ == "__main__":
    main()
