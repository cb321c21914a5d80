"""Tests scripts/slurm and scripts/side_by_side.sh, with stand-ins for srun, scontrol and brim that record their
arguments, so that no Slurm is needed."""

import os
import pathlib
import signal
import subprocess
import time

from support import DONE, FAILED, HANG_SECONDS, INTERRUPTED, USAGE, Case, main

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
SBATCH = sorted(path.name for path in (SCRIPTS / "slurm").glob("*.sbatch"))

# Runs the command after its own options, as Slurm would run a single task.
SRUN = """#!/bin/bash
line=$(printf '<%s>' "$@")
echo "$line" >>"$CALLS" # in one write, as several run at once
while [[ $1 == -* ]]; do shift; done
"$@"
status=$?
exit "${SRUN_STATUS:-$status}"
"""
SCONTROL = """#!/bin/bash
echo "scontrol $*" >>"$CALLS"
exit "${SCONTROL_STATUS:-0}"
"""
# A run that ends as BRIM_WORD says; each call advances one step, unless it is stuck.
BRIM = """#!/bin/bash
run=
for word in "$@"; do [[ $word != run.dir=* ]] || run=${word#run.dir=}; done
[[ $2 != --resume ]] || run=$3
mkdir -p "$run/checkpoints"
touch "$run/config.yaml"
steps=$(readlink "$run/checkpoints/last" || echo 0)
[[ ${STUCK:-} ]] || ln -sfn $((steps + 1)) "$run/checkpoints/last"
printf '{\\n  "status": "%s"\\n}\\n' "${BRIM_WORD:-finished}" >"$run/summary.new"
mv "$run/summary.new" "$run/summary.json"
[[ ! ${SLEEP:-} ]] || { trap 'exit 6' TERM; echo sleeping; while :; do sleep 0.05; done; }
exit "${BRIM_STATUS:-0}"
"""


class Slurm(Case):
    def setUp(self):
        super().setUp()
        tools = self.folder / "tools"
        tools.mkdir()
        for name, text in {"srun": SRUN, "scontrol": SCONTROL, "brim": BRIM}.items():
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "BRIM_"))}
        self.environment = plain | {
            "PATH": f"{tools}:{os.environ['PATH']}", "CALLS": str(self.folder / "calls"), "BRIM": str(tools / "brim"),
            "SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": str(SCRIPTS.parent), "SLURM_JOB_NUM_NODES": "1",
            "SLURM_CPUS_ON_NODE": "16"}

    def batch(self, name, *words, status=DONE, **environment):
        result = subprocess.run(["bash", SCRIPTS / "slurm" / f"{name}.sbatch", *words], cwd=self.folder, text=True,
                                env=self.environment | environment, stdin=subprocess.DEVNULL, capture_output=True,
                                check=False)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def calls(self):
        """Returns the calls of srun (its options and brim's arguments) and of scontrol since the last check."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def step(self):
        """Returns the options and brim's arguments of the only step."""
        lines = self.calls()
        self.assertEqual(len(lines), 1, lines)
        options, words = lines[0].split(f"<{self.environment['BRIM']}>")
        return options[1:-1].split("><"), words[1:-1].split("><")

    def test_options_before_the_first_command_say_how_a_job_continues(self):
        for name in SBATCH:
            lines = (SCRIPTS / "slurm" / name).read_text().splitlines()
            first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
            options = [line for line in lines[:first] if line.startswith("#SBATCH")]
            self.assertFalse([line for line in lines[first:] if "#SBATCH" in line], name)
            for option in options:
                self.assertRegex(option, r"^#SBATCH --[a-z-]+(=\S+)?$", name)
            for needed in ("--signal=TERM@120", "--requeue", "--open-mode=append"):
                self.assertIn(f"#SBATCH {needed}", options, name)

    def test_one_node_has_a_rank_for_each_gpu(self):
        self.batch("node", "model=mlp", "run.dir=my run", SLURM_GPUS_ON_NODE="8")
        options, words = self.step()
        for option in ("--mpi=pmix", "--kill-on-bad-exit=1", "--cpu-bind=cores", "--ntasks=8", "--ntasks-per-node=8",
                       "--cpus-per-task=2", "--distribution=block:block"):
            self.assertIn(option, options)
        self.assertEqual(words, ["train", "model=mlp", "run.dir=my run"])

    def test_several_nodes_and_options_of_the_job_itself(self):
        self.batch("nodes", SLURM_JOB_NUM_NODES="3", SLURM_NTASKS_PER_NODE="4", SLURM_CPUS_PER_TASK="3",
                   SLURM_GPUS_ON_NODE="8", SLURM_MPI_TYPE="pmi2", BRIM_SRUN="--container-image=a --no-kill")
        options, words = self.step()
        for option in ("--nodes=3", "--ntasks=12", "--ntasks-per-node=4", "--cpus-per-task=3", "--mpi=pmi2",
                       "--container-image=a", "--no-kill"):
            self.assertIn(option, options)
        self.assertEqual(words, ["train", "run.dir=runs/slurm-7"])

    def test_processors(self):
        self.batch("cpu", "seed=2", SLURM_JOB_NUM_NODES="2", SLURM_NTASKS_PER_NODE="2", SLURM_CPUS_PER_TASK="8")
        options, words = self.step()
        for option in ("--nodes=2", "--ntasks=4", "--cpus-per-task=8", "--hint=nomultithread"):
            self.assertIn(option, options)
        self.assertEqual(words, ["train", "backend=cpu", "backend.threads=8", "seed=2", "run.dir=runs/slurm-7"])

    def test_an_array_over_seeds(self):
        self.batch("seeds", "model=mlp", SLURM_CPUS_PER_TASK="8", SLURM_ARRAY_JOB_ID="5", SLURM_ARRAY_TASK_ID="3")
        options, words = self.step()
        self.assertIn("--ntasks=1", options)
        self.assertEqual(words, ["train", "dist.ranks=1", "model=mlp", "seed=3", "run.dir=runs/slurm-5/seed-3"])

    def test_four_side_by_side(self):
        result = self.batch("four", "model=mlp", SLURM_CPUS_PER_TASK="4", SLURM_GPUS="4")
        self.assertEqual(result.stdout, "")
        calls = self.calls()
        self.assertEqual(len(calls), 4)
        self.assertTrue(all("<--exact>" in call and "<--gpus=1>" in call for call in calls), calls)
        self.assertEqual(sorted(call.split("<model=mlp>")[1] for call in calls),
                         [f"<seed={i}><run.dir=runs/slurm-7/seed-{i}>" for i in range(1, 5)])

    def test_custom_jobs_without_gpus(self):
        self.batch("four", SLURM_CPUS_PER_TASK="4", BRIM_JOBS="wide model.width=64\nnarrow model.width=16")
        calls = sorted(self.calls())
        narrow, wide = [call.split("<dist.ranks=1>")[1] for call in calls]
        self.assertEqual(narrow, "<model.width=16><run.dir=runs/slurm-7/narrow>")
        self.assertEqual(wide, "<model.width=64><run.dir=runs/slurm-7/wide>")
        self.assertNotIn("--gpus", calls[0])

    def test_an_interrupted_job_requeues_and_resumes_in_its_folder(self):
        result = self.batch("node", "seed=2", status=INTERRUPTED, BRIM_WORD="interrupted", BRIM_STATUS="6")
        self.assertIn("job 7 is requeued", result.stderr)
        self.assertEqual(self.calls()[1:], ["scontrol requeue 7"])
        self.batch("node", "seed=2")
        self.assertEqual(self.step()[1], ["train", "--resume", "runs/slurm-7"])

    def test_the_folder_shows_an_interruption_that_srun_misreports(self):
        self.batch("node", status=INTERRUPTED, BRIM_WORD="interrupted", BRIM_STATUS="6", SRUN_STATUS="143")
        self.assertEqual(self.calls()[1:], ["scontrol requeue 7"])

    def test_a_failure_is_not_repeated(self):
        self.batch("node", status=INTERRUPTED, BRIM_WORD="interrupted", BRIM_STATUS="6")
        self.calls()
        for ends in ({"BRIM_WORD": "failed", "BRIM_STATUS": "5"}, {"SRUN_STATUS": "5", "BRIM": "/bin/true"}):
            self.batch("node", status=FAILED, **ends)
            self.assertNotIn("scontrol", "".join(self.calls()))

    def test_a_job_without_progress_is_not_requeued_for_ever(self):
        self.batch("node", status=INTERRUPTED, BRIM_WORD="interrupted", BRIM_STATUS="6")
        self.calls()
        result = self.batch("node", status=FAILED, BRIM_WORD="interrupted", BRIM_STATUS="6", STUCK="yes")
        self.assertIn("made no progress", result.stderr)
        self.assertEqual(len(self.calls()), 1)

    def test_a_job_that_may_not_requeue_says_how_to_resume(self):
        result = self.batch("node", status=INTERRUPTED, BRIM_WORD="interrupted", BRIM_STATUS="6", SCONTROL_STATUS="1")
        self.assertIn("submit it again with the same run.dir", result.stderr)

    def test_a_job_that_was_cancelled_ends(self):
        process = subprocess.Popen(["bash", SCRIPTS / "slurm/node.sbatch"], cwd=self.folder, text=True,
                                   env=self.environment | {"SLEEP": "yes", "BRIM_WORD": "interrupted"},
                                   start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), "sleeping\n")
        os.killpg(process.pid, signal.SIGTERM)  # like scancel, signals all processes of the job
        _, err = process.communicate(timeout=HANG_SECONDS)
        self.assertEqual(process.returncode, INTERRUPTED, err)
        self.assertIn("job 7 was cancelled", err)
        self.assertNotIn("scontrol", "".join(self.calls()))

    def test_a_folder_must_have_a_plain_name(self):
        result = self.batch("node", "run.dir=runs/${seed}", status=USAGE)
        self.assertIn("must be a plain name", result.stderr)
        self.assertEqual(self.calls(), [])


class SideBySide(Case):
    def run_jobs(self, lines, *command):
        result = subprocess.run([SCRIPTS / "side_by_side.sh", *command], input=lines, cwd=self.folder, text=True,
                                capture_output=True, check=False)
        return result.returncode, sorted(result.stdout.splitlines())

    def test_words_and_names(self):
        lines = "one a b\n\ntwo c\n"
        self.assertEqual(self.run_jobs(lines, "printf", "<%s>\n", "x y"),
                         (DONE, ["one: <a>", "one: <b>", "one: <x y>", "two: <c>", "two: <x y>"]))
        self.assertEqual(self.run_jobs("", "false"), (DONE, []))
        self.assertEqual(self.run_jobs(lines)[0], USAGE)

    def test_the_last_line_may_lack_its_newline_and_names_are_taken_literally(self):
        self.assertEqual(self.run_jobs("a|b&c\\d 1\nlast 2", "echo"), (DONE, ["a|b&c\\d: 1", "last: 2"]))

    def test_the_worst_status_wins_unless_a_job_can_be_resumed(self):
        for codes, status in (("0 0", 0), ("0 3", 3), ("5 3 0", 5), ("6 0", 6), ("6 137", 6)):
            lines = "".join(f"job-{i} {code}\n" for i, code in enumerate(codes.split()))
            self.assertEqual(self.run_jobs(lines, "bash", "-c", 'exit "$1"', "bash"), (status, []), codes)

    def test_a_signal_is_passed_on_and_the_end_awaited(self):
        ends = 'trap "sleep 0.3; echo end; exit 6" TERM; echo up; while :; do sleep 0.02; done'
        process = subprocess.Popen([SCRIPTS / "side_by_side.sh", "bash", "-c", ends], text=True, cwd=self.folder,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process.stdin.write("one\ntwo\n")
        process.stdin.close()
        self.assertEqual(sorted(process.stdout.readline() for _ in range(2)), ["one: up\n", "two: up\n"])
        time.sleep(0.1)
        process.terminate()
        self.assertEqual(sorted(process.stdout.read().splitlines()), ["one: end", "two: end"])
        process.stdout.close()
        self.assertEqual(process.wait(), INTERRUPTED)


if __name__ == "__main__":
    main()
