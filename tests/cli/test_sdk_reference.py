"""docs/sdk matches the headers and the plugins' tables, and its links are valid."""

import pathlib
import re
import subprocess
import sys

from support import BINARY, Case, main

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "sdk").glob("*.md")}


class Reference(Case):
    def check(self, program):
        return subprocess.run([sys.executable, ROOT / "scripts" / "sdk_reference.py", "--check", "--brim", program],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_the_page_matches_the_scripts_output(self):
        result = self.check(BINARY)
        self.assertEqual(result.returncode, 0, result.stdout)

    def stand_in(self, change):
        """Makes a program that lists brim's plugins with `change` applied."""
        program = self.folder / "brim"
        program.write_text(f"#!{sys.executable}\nimport json, subprocess, sys\n"
                           f"all = json.loads(subprocess.check_output(['{BINARY}', *sys.argv[1:]]))\n"
                           f"plugins = {{p['kind'] + '/' + p['id']: p for p in all['plugins']}}\n{change}\n"
                           "print(json.dumps({'plugins': list(plugins.values())}))\n")
        program.chmod(0o755)
        return program

    def test_a_plugin_that_a_build_lacks_stays(self):
        result = self.check(self.stand_in("del plugins['dataset/csv'], plugins['model/cnn']"))
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_changes_are_shown(self):
        result = self.check(self.stand_in("plugins['model/cnn']['help'] = 'another network'"))
        self.assertEqual(result.returncode, 1)
        self.assertIn("\n+another network\n", result.stdout)

    def test_each_header_and_each_exported_function_is_in_it(self):
        for header in (ROOT / "core" / "include" / "brim").glob("*.h"):
            self.assertIn(f"brim/{header.name}", PAGES["README.md"])
        for name in (ROOT / "tests" / "abi" / "symbols.txt").read_text().splitlines():
            if name.startswith("brim_") and name != "brim_main":
                row = rf"\[`{name}`\]\(\w+\.md#{name}\) \| function \|"
                self.assertTrue(re.search(row, PAGES["README.md"]), name)

    def test_links_lead_somewhere(self):
        for name, text in PAGES.items():
            for page, anchor in re.findall(r"\]\(([\w.]*)#([\w-]+)\)", text):
                target = PAGES[page or name]
                found = f'<a id="{anchor}">' in target or re.search(
                    rf"(?mi)^## {anchor.replace('-', '[ -]')}$", target)
                self.assertTrue(found, f"{name}: {page}#{anchor}")
            for path in re.findall(r"\]\((\.\./[^)#]+)\)", text):
                self.assertTrue((ROOT / "docs" / "sdk" / path).exists(), path)
            self.assertEqual(text.count("\n```") % 2, 0, f"{name}: a block of code is not closed")


if __name__ == "__main__":
    main()
