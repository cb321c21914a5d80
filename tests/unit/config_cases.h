/* The input of test_config: a folder of configuration files, and cases of overrides with the expected values or
 * message. */
#ifndef BRIM_TESTS_CONFIG_CASES_H
#define BRIM_TESTS_CONFIG_CASES_H

/* The files, relative to the test's working folder. */
static const struct {
  const char *path, *text;
} config_files[] = {
    {"configs/config.yaml", "defaults:\n"
                            "  - model: cnn\n"
                            "  - dataset: small\n"
                            "  - optimizer: adamw\n"
                            "  - schedule: constant\n"
                            "  - loss: cross_entropy\n"
                            "  - backend: auto\n"
                            "  - _self_\n"
                            "training:\n"
                            "  epochs: 7\n"
                            "model:\n"
                            "  width: 48\n"
                            "dataset:\n"
                            "  validation_fraction: 0.1\n"},
    {"configs/dataset/small.yaml", "id: files\npath: data/small\nclasses: 3\nmean: [0.5]\n"},
    {"configs/dataset/open.yaml", "id: files\npath: ???\n"},
    {"configs/dataset/plain.yaml", "path: data/plain\n"},
    {"configs/dataset/files.yaml", "path: data/files\n"},
    {"configs/dataset/typo.yaml", "id: files\npath: data/typo\nclases: 4\n"},
    {"configs/dataset/later.yaml", "id: files\npath: ${oc.env:BRIM_TEST_DATA}/x\n"},
    {"configs/model/wide.yaml", "defaults:\n  - cnn\nwidth: 512\ntag: wide\n"},
    {"configs/model/wide_first.yaml", "defaults:\n  - _self_\n  - wide\nwidth: 64\nid: cnn\n"},
    {"configs/model/deep.yaml", "id: vit\n# blocks\n# that many?\n# too\n# many\n\ndepth:     0\n"},
    {"configs/model/switch.yaml", "defaults:\n  - optimizer: sgd\nid: mlp\n"},
    {"configs/model/loop.yaml", "defaults:\n  - pool\nid: cnn\n"},
    {"configs/model/pool.yaml", "defaults:\n  - loop\n"},
    {"configs/model/unread.yaml", "id: cnn\nid: cnn\n"},
    {"configs/dataset/brings.yaml", "defaults: [/training: long, _self_]\nid: made\n"},
    {"configs/dataset/valued.yaml", "id: made\nvalidation_fraction: 0.4\n"},
    {"configs/widened.yaml", "defaults: [config, model: wide, _self_]\nmodel: {width: 20}\n"},
    {"configs/back.yaml", "defaults: [widened, model: cnn]\n"},
    {"configs/over.yaml", "defaults: [config, _self_]\nmodel: {width: 20}\n"},
    {"configs/before.yaml",
     "defaults: [_self_, model: cnn, dataset: small, optimizer: sgd, schedule: constant, loss: cross_entropy, "
     "backend: cpu]\nmodel: {width: 20}\n"},
    {"configs/by_environment.yaml", "defaults: [\"config\", model: \"${oc.env:BRIM_TEST_MODEL,cnn}\", _self_]\n"},
    {"configs/rates.yaml", "defaults: [config, _self_]\noptimizer: {lr: 0.5}\n"},
    {"configs/means.yaml", "defaults: [config, _self_]\ndataset: {mean: [0.9], validation_fraction: 0.3}\n"},
    {"configs/threads.yaml", "defaults: [config, _self_]\nbackend: {threads: 2}\n"},
    {"configs/brought.yaml", "defaults: [config, dataset: brings, _self_]\ntraining: {epochs: 7}\n"},
    {"configs/bodied.yaml", "defaults: [config, _self_]\nmodel: {id: vit, depth: 3}\n"},
    {"configs/experiment/fast.yaml", "defaults:\n  - override /model: mlp\ntraining:\n  epochs: 1\n"
                                     "model:\n  dropout: 0.25\n"},
    {"configs/training/long.yaml", "epochs: 90\nbatch_size: 256\n"},
    {"configs/robust.yaml", "defaults:\n  - config\n  - training: long\n  - _self_\ntraining:\n  batch_size: 64\n"},
    {"configs/self_first.yaml", "defaults:\n  - _self_\n  - config\ntraining:\n  epochs: 9\n  batch_size: 9\n"},
    {"configs/listed.yaml", "defaults:\n  - config\n  - experiment: fast\n"},
    {"configs/slash.yaml", "defaults:\n  - config\n  - model/wide\n"},
    {"configs/whole.yaml", "model: {id: vit, depth: 3}\ndataset: {id: made, validation_fraction: 0.2, mean: [0.7]}\n"
                           "optimizer: {id: sgd}\nschedule: {id: constant}\nloss: {id: cross_entropy}\n"
                           "backend: {id: auto, threads: 2}\n+note: kept\n"},
    {"configs/empty.yaml", "# nothing\n"},
    {"configs/wrong.yaml", "defaults:\n  - config\n  - modell: cnn\n  - missing\n  - [a]\n  - _self_\n  - _self_\n"
                           "trainig: {epochs: 3}\nseed: {a: 1}\nmodel: cnn\ndataset: [1]\noptimizer.lr: 3\n"
                           "training: {epochs: 1.0, epoch: 2}\n"},
    {"configs/not_a_map.yaml", "- a\n"},
    {"configs/scalar_on_map.yaml", "defaults: [config]\ntraining: 3\n"},
    {"configs/nulls.yaml", "defaults: [config]\ntraining:\nmodel:\nseed:\n"},
    {"configs/bad_default.yaml", "defaults: {model: cnn}\n"},
    {"configs/choose.yaml", "defaults:\n  - config\n  - model: ???\n"},
    {"configs/old_names.yaml", "defaults: [config]\nfp16: false\ntraining: {gradient_checkpointing: false}\n"},
    {"configs/both_names.yaml", "defaults: [config]\nprecision: fp32\nfp16: false\n"},
    {"configs/training/old.yaml", "epochs: 4\nfp16: false\n"},
    {"configs/after_group.yaml", "defaults: [training: \"${model}\", model: cnn, dataset: small, optimizer: sgd, "
                                 "schedule: constant, loss: cross_entropy, backend: cpu]\n"},
    {"configs/training/cnn.yaml", "epochs: 66\n"},
    {"configs/training/mlp.yaml", "epochs: 77\n"},
    {"configs/refers.yaml", "defaults: [config]\nseed: ${training.epochs}\ntraining:\n  epochs: 7\n"
                            "  eval_batch_size: ${.batch_size}\nrun:\n  dir: out/${..model.id}\n"},
    {"configs/refers_wrong.yaml", "defaults: [config]\nseed: ${model.id}\n"},
    {"configs/id_refers.yaml", "model: {id: \"${run.name}\"}\ndataset: {id: made}\noptimizer: {id: sgd}\n"
                               "schedule: {id: constant}\nloss: {id: cross_entropy}\nbackend: {id: cpu}\n"},
    {"configs/perhaps.yaml",
     "defaults: [config, optional training: mine, optional training: long, optional model: resnet, _self_]\n"},
    {"configs/policy/lab.yaml", "id: first\nweight: 7\nshares: {\"cpu:0\": {alice: 0.4, bob: 2GB}}\n"},
    {"configs/policy/more.yaml", "defaults: [lab, _self_]\nid: first\nweight: 8\n"},
    {"configs/policies.yaml", "defaults: [config, policy: [lab, second], _self_]\npolicy:\n  first: {weight: 9}\n"},
    {"configs/policy_of_group.yaml", "defaults: [config, policy: second, _self_]\npolicy:\n  first: {weight: 9}\n"},
    {"configs/policies_twice.yaml", "defaults: [policies, override policy: [second]]\n"},
    {"configs/policies_perhaps.yaml",
     "defaults: [config, optional policy: [second, lab], optional policy: [lab, none], _self_]\n"},
    {"configs/policies_of_maps.yaml", "defaults: [config, policy: [lab, {a: 1}]]\n"},
    {"configs/policy_none.yaml", "defaults: [config, policy: []]\n"},
    {"configs/policy_ids.yaml", "defaults: [config]\npolicy: {id: [second], second: {weight: 3}}\n"},
    {"configs/policy_id.yaml", "defaults: [config]\npolicy: {id: second}\n"},
    {"configs/policy_id_wrong.yaml", "defaults: [config]\npolicy: {id: {a: 1}}\n"},
    {"configs/policy_scalar.yaml", "defaults: [config]\npolicy: second\n"},
    {"configs/policy_of_unknown.yaml", "defaults: [config]\npolicy: {frist: {weight: 3}}\n"},
    {"configs/batch_auto.yaml", "defaults: [config, training: long, _self_]\ntraining: {batch_size: auto}\n"},
    {"configs/batch_product.yaml", "defaults: [config]\ntraining: {batch_size: 32, gradient_accumulation_steps: 4}\n"},
    {"configs/batch_kept.yaml", "defaults: [config]\ntraining: {batch_size: auto, effective_batch_size: 64}\n"},
    {"configs/batch_wrong.yaml", "defaults: [config]\ntraining: {effective_batch_size: 96, batch_size: 64}\n"},
    {"configs/sparse.yaml",
     "defaults: [model: switch, dataset: small, schedule: constant, loss: cross_entropy, backend: cpu]\n"},
};

/* One case. `want` holds lines "key=value" of the resolved configuration ("key" alone: the key is absent), or the whole
 * message, from "error: " on. */
typedef struct config_case {
  const char *name, *root;
  const char *override[8];
  const char *want;
} config_case;

#define SMALL_DATASET "dataset.id=files\ndataset.path=data/small\n"
#define OPTIONS_OF_MODEL "available: cnn deep loop mlp pool switch unread vit wide wide_first   searched: configs"

#define OPTIONS_OF_POLICY "available: auto_plan first lab more second   searched: configs"

static const config_case config_cases[] = {
    /* ---- composition ---- */
    {"a file's own keys come after its defaults list", NULL, {0}, "training.epochs=7\nmodel.id=cnn\nmodel.width=48\n"},
    {"a key in no file has the table's default", NULL, {0}, "model.dropout=0.5\nseed=1\ntraining.batch_size=64\n"},
    {"an option file gives its values", NULL, {0}, SMALL_DATASET "dataset.classes=3\ndataset.mean=[0.5]\n"},
    {"a section named like a group adds core keys", NULL, {0}, "dataset.validation_fraction=0.1\ndataset.std=[]\n"},
    {"backend auto becomes cpu", NULL, {0}, "backend.id=cpu\nbackend.threads=0\n"},
    {"backend auto may be chosen", NULL, {"backend=auto"}, "backend.id=cpu\n"},
    {"a plugin's id is an option", NULL, {"model=vit"}, "model.id=vit\nmodel.depth=12\n"},
    {"the old option's keys vanish",
     NULL,
     {"dataset=made"},
     "dataset.id=made\ndataset.count=100\ndataset.path\n"
     "dataset.classes\n"},
    {"core keys of the file itself stay with another option",
     NULL,
     {"dataset=made"},
     "dataset.validation_fraction=0.1\n"},
    {"keys of an option file apply to that option only", NULL, {"dataset=made"}, "dataset.mean=[]\n"},
    {"a plugin's own key of the file itself belongs to the option that its defaults list names",
     NULL,
     {"model=wide"},
     "model.width=512\nmodel.tag=wide\nmodel.id=cnn\n"},
    {"the default option by name changes nothing", NULL, {"model=cnn"}, "model.width=48\nmodel.id=cnn\n"},
    {"nor does it with the ending of its file",
     "widened",
     {"model=wide.yaml"},
     "model.width=20\nmodel.tag=wide\nmodel.id=cnn\n"},
    {"nor by interpolation", "by_environment", {"model=cnn"}, "model.width=48\n"},
    {"a key of a file belongs to the option of the list that it includes", "over", {"model=wide"}, "model.width=512\n"},
    {"and applies with that option", "over", {0}, "model.width=20\nmodel.id=cnn\n"},
    {"a later list's choice drops an earlier file's keys for its own choice", "widened", {0}, "model.width=20\n"},
    {"keys for an option chosen in between are dropped", "back", {0}, "model.width=48\nmodel.id=cnn\nmodel.tag=\"\"\n"},
    {"also keys before the defaults list", "before", {"model=wide"}, "model.width=512\n"},
    {"and keys before it stay with the list's own option", "before", {0}, "model.width=20\n"},
    {"an optimizer has its own rate", "rates", {"optimizer=lion"}, "optimizer.id=lion\noptimizer.lr=0.0001\n"},
    {"with the default option the file's", "rates", {0}, "optimizer.id=adamw\noptimizer.lr=0.5\n"},
    {"a value of the command line holds for any option",
     "rates",
     {"optimizer.lr=3", "optimizer=lion"},
     "optimizer.lr=3\n"},
    {"keys of the core stay, but means are the samples'",
     "means",
     {"dataset=made"},
     "dataset.mean=[]\ndataset.validation_fraction=0.3\n"},
    {"an option's own value of a core key comes after the file's",
     "means",
     {"dataset=valued"},
     "dataset.validation_fraction=0.4\n"},
    {"keys for backend auto apply to the backend it chooses",
     "threads",
     {"backend=cpu"},
     "backend.id=cpu\nbackend.threads=2\n"},
    {"a choice wins over a file's keys for the option that a data set implies",
     "brought",
     {"training=old"},
     "training.epochs=4\n"},
    {"which is after that option else", "brought", {0}, "training.epochs=7\ntraining.batch_size=256\n"},
    {"also over an id in the body", "bodied", {"model=mlp"}, "model.id=mlp\nmodel.depth\n"},
    {"a plugin's key in the file itself is dropped if the other option lacks it",
     NULL,
     {"model=mlp"},
     "model.id=mlp\nmodel.width\nmodel.hidden=[512, 256]\n"},
    {"an option file is for the plugin of its name",
     NULL,
     {"dataset=files"},
     "dataset.id=files\n"
     "dataset.path=data/files\n"},
    {"an option file may include a sibling",
     "empty",
     {"model=wide", "dataset=small", "optimizer=sgd", "schedule=constant", "loss=cross_entropy", "backend=cpu"},
     "model.id=cnn\nmodel.width=512\nmodel.tag=wide\noptimizer.id=sgd\n"},
    {"_self_ placed first in an option file", "whole", {"model=wide_first"}, "model.width=512\nmodel.tag=wide\n"},
    {"_self_ placed first in the root", "self_first", {0}, "training.epochs=7\ntraining.batch_size=9\n"},
    {"an option's defaults list chooses for other groups", "sparse", {0}, "model.id=mlp\noptimizer.id=sgd\n"},
    {"a later defaults list wins over an option's", NULL, {"model=switch"}, "optimizer.id=adamw\n"},
    {"the command line wins over an option's defaults list",
     NULL,
     {"model=switch", "optimizer=adamw"},
     "optimizer.id=adamw\n"},
    {"a file includes another, and a folder of the search path is a group",
     "robust",
     {0},
     "training.epochs=90\ntraining.batch_size=64\nmodel.width=48\n"},
    {"a group of files only may be chosen on the command line", NULL, {"training=long"}, "training.epochs=90\n"},
    {"an experiment merges at the root, after the file itself",
     NULL,
     {"experiment=fast"},
     "training.epochs=1\nmodel.id=mlp\nmodel.dropout=0.25\n"},
    {"an experiment with + as Hydra writes it", NULL, {"+experiment=fast"}, "training.epochs=1\nmodel.id=mlp\n"},
    {"an experiment in the defaults list", "listed", {0}, "training.epochs=1\nmodel.id=mlp\n"},
    {"the command line wins over an experiment",
     "listed",
     {"model=vit", "training.epochs=2", "~experiment"},
     "training.epochs=2\nmodel.id=vit\n"},
    {"a file named group/option is a choice", "slash", {0}, "model.tag=wide\nmodel.width=512\n"},
    {"groups may stand in the body with their id",
     "whole",
     {0},
     "model.id=vit\nmodel.depth=3\nbackend.id=cpu\nbackend.threads=2\ndataset.count=100\n"},
    {"an option replaces a group of the body, but for core keys",
     "whole",
     {"model=cnn", "dataset=small"},
     "model.id=cnn\nmodel.depth\ndataset.id=files\ndataset.validation_fraction=0.2\ndataset.mean=[0.5]\n"},
    {"an empty section changes nothing", "nulls", {"seed=3"}, "training.epochs=7\nmodel.width=48\nseed=3\n"},
    {"a plugin's default comes before the core's", NULL, {"dataset=files"}, "dataset.mean=[0.25]\n"},

    {"an optional option", "perhaps", {0}, "training.epochs=90\nmodel.id=cnn\ntraining.batch_size=256\n"},

    /* ---- overrides ---- */
    {"key=value", NULL, {"training.epochs=3"}, "training.epochs=3\n"},
    {"the last one wins", NULL, {"seed=2", "seed=3", "model=mlp", "model=vit"}, "seed=3\nmodel.id=vit\n"},
    {"order of choice and value does not matter", NULL, {"model.depth=4", "model=vit"}, "model.depth=4\n"},
    {"split at the first =", NULL, {"run.name=epoch=3.ckpt"}, "run.name=epoch=3.ckpt\n"},
    {"key= is the empty string", NULL, {"run.name=x", "run.name="}, "run.name=\"\"\n"},
    {"quoted values are strings", NULL, {"run.name='3'", "model.tag=\"a,b\""}, "run.name=\"3\"\nmodel.tag=\"a,b\"\n"},
    {"values are taken as they stand",
     NULL,
     {"run.name=a: b #c", "run.dir=*x", "model.tag=&y"},
     "run.name=\"a: b #c\"\nrun.dir=\"*x\"\nmodel.tag=\"&y\"\n"},
    {"blanks around a value go", NULL, {"seed= 4 "}, "seed=4\n"},
    {"a string may look like another type",
     NULL,
     {"run.name=true", "model.tag=1e-4"},
     "run.name=true\nmodel.tag=1e-4\n"},
    {"lists replace", NULL, {"dataset.mean=[0.1,0.2]"}, "dataset.mean=[0.1, 0.2]\n"},
    {"a scalar is a list of one", NULL, {"dataset.mean=0.1"}, "dataset.mean=0.1\n"},
    {"+= appends", NULL, {"dataset.mean+=[0.6,0.7]", "dataset.mean+=0.8"}, "dataset.mean=[0.5, 0.6, 0.7, 0.8]\n"},
    {"+= appends to a default", NULL, {"model=mlp", "model.hidden+=[64]"}, "model.hidden=[512, 256, 64]\n"},
    {"an item of a list", NULL, {"model=mlp", "model.hidden.1=8"}, "model.hidden=[512, 8]\n"},
    {"++ sets an existing item", NULL, {"model=mlp", "++model.hidden.1=8"}, "model.hidden=[512, 8]\n"},
    {"+= adds a name to a set",
     NULL,
     {"graph.fuse=[dropout_add]", "graph.fuse+=[bias_activation]"},
     "graph.fuse=[dropout_add, bias_activation]\n"},
    {"~key=[list] removes that list", NULL, {"dataset.mean=[1,2]", "~dataset.mean=[1, 2]"}, "dataset.mean=[0.25]\n"},
    {"a map merges into a section",
     NULL,
     {"training={epochs: 3, batch_size: 4}"},
     "training.epochs=3\ntraining.batch_size=4\n"},
    {"a map merges into a group", NULL, {"model={width: 8}"}, "model.width=8\nmodel.id=cnn\n"},
    {"+ adds a key", NULL, {"+note=hi", "+project.tag=x"}, "+note=hi\n+project.tag=x\n"},
    {"+ adds below a section", NULL, {"+optimizer.learning_rat=1e-4"}, "optimizer.+learning_rat=1e-4\n"},
    {"an added key may be changed and removed",
     NULL,
     {"+note=hi", "note=ho", "+b.c=1", "b.c=2", "~note"},
     "+note\n+b.c=2\n"},
    {"++ sets an existing key", NULL, {"++training.epochs=3"}, "training.epochs=3\n"},
    {"++ adds a missing key", NULL, {"++note=3"}, "+note=3\n"},
    {"~ gives the default back", NULL, {"~training.epochs", "~model.width"}, "training.epochs=5\nmodel.width=32\n"},
    {"~key=value removes that value", NULL, {"~training.epochs=7"}, "training.epochs=5\n"},
    {"~ removes a section", NULL, {"memory.limit_mb=3", "~memory"}, "memory.limit_mb=0\n"},
    {"integers in other bases", NULL, {"seed=0x10", "training.epochs=0o10"}, "seed=0x10\ntraining.epochs=0o10\n"},
    {"an integer is a number", NULL, {"optimizer.lr=1"}, "optimizer.lr=1\n"},
    {"units of bytes and time",
     NULL,
     {"backend.memory_mb=4GB", "backend.cache_bytes=512KiB", "backend.wait_minutes=90s", "backend.poll_seconds=0.5min"},
     "backend.memory_mb=4GB\nbackend.cache_bytes=512KiB\nbackend.wait_minutes=90s\nbackend.poll_seconds=0.5min\n"},
    {"a quote inside a word is an apostrophe", NULL, {"run.name=it's"}, "run.name=\"it's\"\n"},
    {"commas in brackets and quotes do not sweep",
     NULL,
     {"run.name=f(1,2)", "model.tag='a,b'"},
     "run.name=\"f(1,2)\"\nmodel.tag=\"a,b\"\n"},

    /* ---- old names and reserved keys ---- */
    {"an old name with a neutral value", NULL, {"fp16=false"}, "precision=fp32\nfp16\n"},
    {"an old name below training", NULL, {"training.fp16=false"}, "precision=fp32\ntraining.fp16\n"},
    {"an old name in a map", NULL, {"training={fp16: false, epochs: 2}"}, "precision=fp32\ntraining.epochs=2\n"},
    {"an old name that sets nothing", NULL, {"training.auto_batch_size=false"}, "training.batch_size=64\n"},
    {"an old name of a policy's that is the core's now",
     NULL,
     {"policy.periodic.warn_percent=70", "policy.periodic.critical_percent=80"},
     "memory.warn_percent=70\nmemory.critical_percent=80\npolicy.periodic.warn_percent\n"},
    {"an old name removed", NULL, {"precision=bf16", "~fp16"}, "precision=auto\n"},
    {"old names in files", "old_names", {0}, "precision=fp32\nmemory.recompute=none\ntraining.epochs=7\n"},
    {"an old name in an option's file", NULL, {"training=old"}, "precision=fp32\ntraining.epochs=4\n"},
    {"a size that may be left to brim", NULL, {0}, "memory.headroom_mb=auto\n"},
    {"the same, written out", NULL, {"memory.headroom_mb=1GiB"}, "memory.headroom_mb=1GiB\n"},
    {"a label", NULL, {"protocol=mqtt"}, "protocol=mqtt\n"},
    {"a key of clients that is not set", NULL, {0}, "protocol\n"},
    {"an old name that turns something on",
     NULL,
     {"training.gradient_checkpointing=true"},
     "memory.recompute=blocks\ntraining.gradient_checkpointing\n"},
    {"an old name with a value of its own", NULL, {"fp16=true"}, "precision=fp16\nfp16\n"},
    {"a size that is neither",
     NULL,
     {"memory.headroom_mb=some"},
     "error: 'memory.headroom_mb' must be auto or a size: a whole number of MiB, or one with a unit (512MiB, 4GB), got "
     "some\n"
     "  command line, argument 1: memory.headroom_mb=some   (device memory that plans leave free for the driver and "
     "libraries; auto: the growth measured in earlier runs; default auto)"},
    {"a label with a wrong value",
     NULL,
     {"protocol={a: 1}"},
     "error: 'protocol' must be a string, got a map\n"
     "  command line, argument 1: protocol={a: 1}   (name of the messaging protocol, for reports only; the keys of "
     "the group network describe the network; default "
     "'')"},
    {"an invalid number of repeats",
     NULL,
     {"repeats=0"},
     "error: 'repeats' must be in [1,10000], got 0\n"
     "  command line, argument 1: repeats=0   (number of runs, with the seeds seed, seed+1, ...; each run has "
     "its own process; default 1)"},
    {"comm is one name",
     NULL,
     {"comm=[mpi,nccl]"},
     "error: 'comm' holds keys and is not a value itself\n"
     "  command line, argument 1: comm=[mpi,nccl]\n"
     "  write comm=OPTION, or comm.KEY=VALUE"},
    {"an old name with a wrong value",
     NULL,
     {"fp16=yes"},
     "error: 'fp16' must be true or false, got yes\n"
     "  command line, argument 1: fp16=yes\n"
     "  it is the old name of 'precision'"},
    {"an old name cannot be added",
     NULL,
     {"+fp16=true"},
     "error: 'fp16' exists already: to change it, write fp16=true\n"
     "  command line, argument 1: +fp16=true"},
    {"an old name beside its new one",
     "both_names",
     {0},
     "error: 'fp16' is the old name of 'precision', and both are given: leave out 'fp16'\n"
     "  configs/both_names.yaml:3:1"},

    /* ---- groups that are lists ---- */
    {"a list without a choice has the core's default", NULL, {0}, "policy.id=[auto_plan]\n"},
    {"an option of a list, with its parameters below its id",
     NULL,
     {"policy=first"},
     "policy.id=[first]\n"
     "policy.first.weight=auto\n"
     "policy.first.shares={}\n"
     "policy.auto_plan\n"},
    {"several, in their order",
     NULL,
     {"policy=[second,first]"},
     "policy.id=[second, first]\n"
     "policy.second.weight=2\n"
     "policy.first.weight=auto\n"},
    {"none, as the empty list",
     NULL,
     {"policy=[]"},
     "policy.id=[]\n"
     "policy.auto_plan\n"},
    {"none, as one name that is empty", NULL, {"policy="}, "policy.id=[]\n"},
    {"null means the core's default", NULL, {"policy=null"}, "policy.id=[auto_plan]\n"},
    {"the last choice is the whole list", NULL, {"policy=[first,second]", "policy=second"}, "policy.id=[second]\n"},
    {"an option of a list that is a file",
     NULL,
     {"policy=lab"},
     "policy.id=[first]\n"
     "policy.first.weight=7\n"},
    {"files and plugins in a list",
     NULL,
     {"policy=[second,lab]", "policy.first.weight=1", "policy={second: {weight: 5}}"},
     "policy.id=[second, first]\n"
     "policy.first.weight=1\n"
     "policy.second.weight=5\n"},
    {"an option of a list that includes a sibling",
     NULL,
     {"policy=more"},
     "policy.id=[first]\n"
     "policy.first.weight=8\n"},
    {"a list by interpolation",
     NULL,
     {"policy=[${oc.env:BRIM_TEST_POLICY,first},second]"},
     "policy.id=[first, second]\n"},
    {"a list in a defaults list",
     "policies",
     {0},
     "policy.id=[first, second]\n"
     "policy.first.weight=9\n"
     "policy.second.weight=2\n"},
    {"no option in a defaults list", "policy_none", {0}, "policy.id=[]\n"},
    {"a later defaults list has the whole list",
     "policies_twice",
     {0},
     "policy.id=[second]\n"
     "policy.first\n"},
    {"optional lists are left out unless complete",
     "policies_perhaps",
     {0},
     "policy.id=[second, first]\n"
     "policy.first.weight=7\n"},
    {"a file's keys for a policy outside the list are left out",
     "policy_of_group",
     {0},
     "policy.id=[second]\n"
     "policy.first\n"},
    {"they apply with the policy",
     "policy_of_group",
     {"policy=first"},
     "policy.id=[first]\n"
     "policy.first.weight=9\n"},
    {"a list may stand in the body with its ids",
     "policy_ids",
     {0},
     "policy.id=[second]\n"
     "policy.second.weight=3\n"},
    {"or with one id",
     "policy_id",
     {0},
     "policy.id=[second]\n"
     "policy.second.weight=2\n"},
    {"a choice replaces the body's list",
     "policy_ids",
     {"policy=lab"},
     "policy.id=[first]\n"
     "policy.second\n"},
    {"+= appends to the default", NULL, {"policy+=first"}, "policy.id=[auto_plan, first]\n"},
    {"+= appends a list", NULL, {"policy+=[first,second]"}, "policy.id=[auto_plan, first, second]\n"},
    {"+= appends an option that is a file",
     NULL,
     {"policy+=lab"},
     "policy.id=[auto_plan, first]\n"
     "policy.first.weight=7\n"},
    {"+= appends to the defaults list's", "policy_of_group", {"policy+=auto_plan"}, "policy.id=[second, auto_plan]\n"},
    {"+= appends to the body's",
     "policy_ids",
     {"policy+=lab"},
     "policy.id=[second, first]\n"
     "policy.second.weight=3\n"},
    {"+= appends to a choice before it",
     NULL,
     {"policy=[second]", "policy+=first", "policy+=[auto_plan]", "policy+=[]"},
     "policy.id=[second, first, auto_plan]\n"},
    {"+= appends to the empty list", NULL, {"policy=[]", "policy+=first"}, "policy.id=[first]\n"},
    {"+= of nothing changes nothing", NULL, {"policy+=[]", "policy+="}, "policy.id=[auto_plan]\n"},
    {"a choice after += is the whole list", NULL, {"policy+=first", "policy=second"}, "policy.id=[second]\n"},
    {"+= to a group that was removed", "policies", {"~policy", "policy+=second"}, "policy.id=[auto_plan, second]\n"},
    {"+= by interpolation", NULL, {"policy+=${oc.env:BRIM_TEST_POLICY,first}"}, "policy.id=[auto_plan, first]\n"},
    {"no such policy",
     NULL,
     {"policy=[first,third]"},
     "error: no option 'third' in group 'policy'\n"
     "  " OPTIONS_OF_POLICY},
    {"no such policy appended, where a file chooses others",
     "policies",
     {"policy+=third"},
     "error: no option 'third' in group 'policy'\n"
     "  " OPTIONS_OF_POLICY},
    {"a policy twice",
     NULL,
     {"policy=[first,second,first]"},
     "error: 'first' appears twice in the list of 'policy'\n"
     "  command line, argument 1: policy=[first,second,first]"},
    {"a policy twice, by its file",
     NULL,
     {"policy=[first,lab]"},
     "error: 'first' appears twice in the list of 'policy'\n"
     "  configs/policy/lab.yaml:1:5"},
    {"appending a policy twice",
     NULL,
     {"policy+=auto_plan"},
     "error: 'auto_plan' appears twice in the list of 'policy'\n"
     "  command line, argument 1: policy+=auto_plan"},
    {"an item that is a map",
     NULL,
     {"policy=[first,{a: 1}]"},
     "error: 'policy' must be a list of names, but item 1 is a map\n"
     "  command line, argument 1: policy=[first,{a: 1}]"},
    {"an item that is a list",
     NULL,
     {"policy+=[[first]]"},
     "error: 'policy' must be a list of names, but item 0 is a list\n"
     "  command line, argument 1: policy+=[[first]]"},
    {"a map appended",
     NULL,
     {"policy+={a: 1}"},
     "error: 'policy' must be a name or a list of names, got a map\n"
     "  command line, argument 1: policy+={a: 1}"},
    {"a map is keys of the policies",
     NULL,
     {"policy={a: 1}"},
     "error: unknown key 'policy.a'\n"
     "  command line, argument 1: policy={a: 1}\n"
     "  to add a new key, write +policy.a=VALUE"},
    {"a key of a policy that is not in the list",
     NULL,
     {"policy.first.weight=3"},
     "error: unknown key 'policy.first.weight'\n"
     "  command line, argument 1: policy.first.weight=3\n"
     "  'first' is not in the list of 'policy': add it with policy+=first"},
    {"a key that a policy of the list does not have",
     NULL,
     {"policy=first", "policy.first.colour_of_it=3"},
     "error: unknown key 'policy.first.colour_of_it'\n"
     "  command line, argument 2: policy.first.colour_of_it=3\n"
     "  to add a new key, write +policy.first.colour_of_it=3\n"
     "  policy 'first' has: weight shares"},
    {"an item of the ids set by itself",
     NULL,
     {"policy.id.0=first"},
     "error: 'policy.id.0' cannot be set directly: to choose a plugin, write policy=first\n"
     "  command line, argument 1: policy.id.0=first"},
    {"the ids appended to by themselves",
     NULL,
     {"policy.id+=first"},
     "error: 'policy.id' cannot be set directly: to choose a plugin, write policy=first\n"
     "  command line, argument 1: policy.id+=first"},
    {"a file's unknown policy",
     "policy_of_unknown",
     {0},
     "error: unknown key 'policy.frist'\n"
     "  configs/policy_of_unknown.yaml:2:10"},
    {"ids that are a map",
     "policy_id_wrong",
     {0},
     "error: 'policy.id' must be a list of names of plugins\n"
     "  configs/policy_id_wrong.yaml:2:14"},
    {"a name instead of the group",
     "policy_scalar",
     {0},
     "error: 'policy' is a group: a scalar cannot replace it\n"
     "  configs/policy_scalar.yaml:2:9\n"
     "  choose an option in the defaults list: - policy: OPTION"},
    {"maps in a defaults list's list",
     "policies_of_maps",
     {0},
     "error: an entry of a defaults list is 'group: option', '_self_', or the name of a file\n"
     "  configs/policies_of_maps.yaml:1:20"},
    {"an invalid share",
     NULL,
     {"policy=first", "policy.first.shares={a: {alice: 1.5}}"},
     "error: 'policy.first.shares' 'a.alice' must be a share in (0,1], or bytes with a unit (8000MB), got 1.5\n"
     "  command line, argument 2: policy.first.shares={a: {alice: 1.5}}   (first: who may have how much; default {})"},

    /* ---- the effective batch ---- */
    {"batch_size=auto keeps the effective batch of the defaults",
     NULL,
     {"training.batch_size=auto"},
     "training.batch_size=auto\n"
     "training.effective_batch_size=64\n"
     "training.gradient_accumulation_steps=1\n"},
    {"by its old name",
     NULL,
     {"training.auto_batch_size=true"},
     "training.batch_size=auto\n"
     "training.effective_batch_size=64\n"},
    {"that of the file", "robust", {"training.batch_size=auto"}, "training.effective_batch_size=64\n"},
    {"that of the file's product",
     "batch_product",
     {"training.batch_size=auto"},
     "training.effective_batch_size=128\n"},
    {"that of the command line",
     "batch_product",
     {"training.batch_size=16", "training.batch_size=auto"},
     "training.effective_batch_size=64\n"},
    {"a file that sets auto itself",
     "batch_auto",
     {0},
     "training.batch_size=auto\n"
     "training.effective_batch_size=256\n"},
    {"a run's kept batch, and another micro-batch",
     "batch_kept",
     {"training.batch_size=16"},
     "training.gradient_accumulation_steps=4\n"
     "training.effective_batch_size=64\n"},
    {"a run's kept batch gives way to typed values",
     "batch_kept",
     {"training.batch_size=16", "training.gradient_accumulation_steps=2"},
     "training.gradient_accumulation_steps=2\n"
     "training.effective_batch_size=0\n"},
    {"a run's kept batch, and another accumulation of auto",
     "batch_kept",
     {"training.gradient_accumulation_steps=4"},
     "training.batch_size=auto\n"
     "training.effective_batch_size=256\n"},
    {"three numbers that contradict each other",
     NULL,
     {"training.batch_size=32", "training.effective_batch_size=64", "training.gradient_accumulation_steps=4"},
     "error: training.batch_size 32 times training.gradient_accumulation_steps 4 is not training.effective_batch_size "
     "64\n"
     "  command line, argument 3: training.gradient_accumulation_steps=4\n"
     "  leave one of them out: it follows from the other two"},
    {"a number after auto",
     "batch_auto",
     {"training.batch_size=8"},
     "training.batch_size=8\n"
     "training.effective_batch_size=0\n"},
    {"an effective batch beside auto",
     "batch_product",
     {"training.batch_size=auto", "training.effective_batch_size=96"},
     "training.batch_size=auto\n"
     "training.effective_batch_size=96\n"},
    {"accumulation follows from the effective batch",
     "batch_product",
     {"training.effective_batch_size=256"},
     "training.batch_size=32\n"
     "training.gradient_accumulation_steps=8\n"
     "training.effective_batch_size=256\n"},
    {"an effective batch that is not a multiple",
     NULL,
     {"training.batch_size=48", "training.effective_batch_size=128"},
     "error: training.effective_batch_size 128 is not a multiple of training.batch_size 48\n"
     "  command line, argument 1: training.batch_size=48\n"
     "  choose a batch_size that divides it, or auto"},
    {"no multiple, in a file",
     "batch_wrong",
     {0},
     "error: training.effective_batch_size 96 is not a multiple of training.batch_size 64\n"
     "  configs/batch_wrong.yaml:2:50\n"
     "  choose a batch_size that divides it, or auto"},
    {"a micro-batch of 0",
     NULL,
     {"training.batch_size=0"},
     "error: 'training.batch_size' must be auto or in [1,1048576], got 0\n"
     "  command line, argument 1: training.batch_size=0   (samples in a micro-batch; auto: a policy chooses; default "
     "64)"},
    {"a micro-batch that says auto as a string",
     NULL,
     {"training.batch_size='auto'"},
     "error: 'training.batch_size' must be auto or an integer, got the string 'auto'\n"
     "  command line, argument 1: training.batch_size='auto'   (samples in a micro-batch; auto: a policy chooses; "
     "default 64)"},

    /* ---- interpolation ---- */
    {"a value of another key", NULL, {"run.name=${model.id}"}, "run.name=cnn\n"},
    {"a default", NULL, {"training.eval_batch_size=${training.batch_size}"}, "training.eval_batch_size=64\n"},
    {"of the final values", NULL, {"seed=${training.epochs}", "training.epochs=3"}, "seed=3\n"},
    {"in text", NULL, {"run.name=${model.id}-w${model.width}-${dataset.id}"}, "run.name=cnn-w48-files\n"},
    {"text becomes the declared type", NULL, {"training.epochs=${seed}0"}, "training.epochs=10\n"},
    {"a chain", NULL, {"seed=${training.epochs}", "training.epochs=${model.width}"}, "seed=48\ntraining.epochs=48\n"},
    {"inside each other", NULL, {"+which=width", "seed=${model.${which}}"}, "seed=48\n"},
    {"a key beside", NULL, {"training.eval_batch_size=${.epochs}"}, "training.eval_batch_size=7\n"},
    {"a key of the section around",
     NULL,
     {"training.eval_batch_size=${..model.width}"},
     "training.eval_batch_size=48\n"},
    {"an item of a list, both ways", NULL, {"+a=${dataset.mean.0}", "+b=${dataset.mean[0]}"}, "+a=0.5\n+b=0.5\n"},
    {"a whole list", NULL, {"dataset.std=${dataset.mean}"}, "dataset.std=[0.5]\n"},
    {"in a list without quotes",
     NULL,
     {"dataset.std=[${model.dropout},0.25,'${dataset.mean.0}']"},
     "dataset.std=[0.5, 0.25, 0.5]\n"},
    {"in a map without quotes", NULL, {"+m={a: ${seed}, b: x-${seed}}"}, "+m.a=1\n+m.b=\"x-1\"\n"},
    {"a whole map", NULL, {"+m={a: 1, b: [2, '${..a}']}", "+n=${m}"}, "+n.a=1\n+n.b=[2, 1]\n"},
    {"a section", NULL, {"+copy=${memory}"}, "+copy.limit_mb=0\n+copy.limit=0\n"},
    {"the environment", NULL, {"run.name=${oc.env:BRIM_TEST_SET}"}, "run.name=\"a b\"\n"},
    {"the environment, by declared type", NULL, {"seed=${oc.env:BRIM_TEST_NUMBER}"}, "seed=42\n"},
    {"the environment, in a free map", NULL, {"+n=${oc.env:BRIM_TEST_NUMBER}"}, "+n=\"42\"\n"},
    {"the environment's default", NULL, {"run.name=${oc.env:BRIM_TEST_DATA,here}"}, "run.name=here\n"},
    {"a default with a comma and a brace", NULL, {"run.name=${oc.env:BRIM_TEST_DATA,'a,b}'}"}, "run.name=\"a,b}\"\n"},
    {"an empty default", NULL, {"run.name=${oc.env:BRIM_TEST_DATA,}"}, "run.name=\"\"\n"},
    {"a default that refers", NULL, {"run.name=${oc.env:BRIM_TEST_DATA,${model.id}}"}, "run.name=cnn\n"},
    {"escaped", NULL, {"run.name=\\${model.id}"}, "run.name=\"${model.id}\"\n"},
    {"a backslash before", NULL, {"run.name=\\\\${model.id}"}, "run.name=\"\\\\cnn\"\n"},
    {"a backslash elsewhere", NULL, {"run.name=a\\b\\\\c"}, "run.name=\"a\\\\b\\\\\\\\c\"\n"},
    {"dollar signs without a reference", NULL, {"+a=$", "+b=$x {y}"}, "+a=\"$\"\n+b=\"$x {y}\"\n"},
    {"an option from the environment", NULL, {"model=${oc.env:BRIM_TEST_MODEL}"}, "model.id=vit\n"},
    {"an option after that of another group", "after_group", {"model=mlp"}, "model.id=mlp\ntraining.epochs=77\n"},
    {"in a file", "refers", {0}, "training.eval_batch_size=64\nrun.dir=out/cnn\nseed=7\n"},
    {"a variable that is not set",
     NULL,
     {"dataset=later"},
     "error: 'dataset.path' needs the environment variable 'BRIM_TEST_DATA', which is not set\n"
     "  configs/dataset/later.yaml:2:7\n"
     "  set it, or write ${oc.env:BRIM_TEST_DATA,DEFAULT}"},
    {"no such key to refer to",
     NULL,
     {"run.name=${model.widht}"},
     "error: 'run.name' refers to ${model.widht}, and there is no key 'model.widht'\n"
     "  command line, argument 1: run.name=${model.widht}\n"
     "  did you mean '${model.width}'?"},
    {"above the root",
     NULL,
     {"seed=${...x}"},
     "error: 'seed' refers to ${...x}, which is above the root\n"
     "  command line, argument 1: seed=${...x}"},
    {"a cycle",
     NULL,
     {"seed=${training.epochs}", "training.epochs=${model.width}", "model.width=${seed}"},
     "error: interpolations form a cycle: model.width -> seed -> training.epochs -> model.width\n"
     "  command line, argument 3: model.width=${seed}\n"
     "  command line, argument 1: seed=${training.epochs}\n"
     "  command line, argument 2: training.epochs=${model.width}"},
    {"a cycle of one",
     NULL,
     {"seed=${seed}"},
     "error: interpolations form a cycle: seed -> seed\n"
     "  command line, argument 1: seed=${seed}"},
    {"a map in itself",
     NULL,
     {"+m={a: 1, b: '${m}'}"},
     "error: interpolations form a cycle: m.b -> m.b\n"
     "  command line, argument 1: +m={a: 1, b: '${m}'}"},
    {"not closed",
     NULL,
     {"run.name=${model.id"},
     "error: 'run.name' holds '${' without its '}'\n"
     "  command line, argument 1: run.name=${model.id"},
    {"an invalid name",
     NULL,
     {"run.name=${a b}"},
     "error: 'run.name' refers to 'a b', which is not a key: write names joined by dots\n"
     "  command line, argument 1: run.name=${a b}"},
    {"a map in text",
     NULL,
     {"run.name=x${model}"},
     "error: 'run.name' puts a map or a list into text\n"
     "  command line, argument 1: run.name=x${model}"},
    {"an unknown resolver",
     NULL,
     {"run.name=${now:%Y}"},
     "error: 'run.name' calls ${now:...}, and the only resolver is oc.env\n"
     "  command line, argument 1: run.name=${now:%Y}\n"
     "  to write it as text, write \\${now:...}"},
    {"a value of the wrong type names its origin",
     "refers_wrong",
     {0},
     "error: 'seed' must be an integer, got cnn\n"
     "  configs/refers_wrong.yaml:2:7, from ${model.id}   (seed of initial weights, sample order, augmentation and "
     "dropout; default "
     "1)"},
    {"an id cannot refer to keys",
     "id_refers",
     {0},
     "error: 'model.id' cannot refer to ${run.name}, since it chooses a plugin: ${oc.env:...} only\n"
     "  configs/id_refers.yaml:1:13"},
    {"a reference to a missing value is reported once",
     NULL,
     {"dataset=open", "run.name=${dataset.path}"},
     "error: 'dataset.path' is mandatory and has no value: write dataset.path=VALUE\n"
     "  configs/dataset/open.yaml:2:7   (files: folder of the files)"},
    {"all missing values at once",
     NULL,
     {"dataset=open", "+note=???", "seed=???"},
     "error: 'note' is mandatory and has no value: write note=VALUE\n"
     "  command line, argument 2: +note=???\n"
     "error: 'seed' is mandatory and has no value: write seed=VALUE\n"
     "  command line, argument 3: seed=???   (seed of initial weights, sample order, augmentation and dropout)\n"
     "error: 'dataset.path' is mandatory and has no value: write dataset.path=VALUE\n"
     "  configs/dataset/open.yaml:2:7   (files: folder of the files)"},

    /* ---- maps and values ---- */
    {"maps merge", NULL, {"+m={a: 1, b: {c: 2}}", "m={b: {d: 3}, e: 4}"}, "+m.a=1\n+m.b.c=2\n+m.b.d=3\n+m.e=4\n"},
    {"a scalar never replaces a map of the user's",
     NULL,
     {"+m={a: 1}", "m=3"},
     "error: 'm' is a map: a scalar cannot replace it\n"
     "  command line, argument 2: m=3\n"
     "  write m.KEY=VALUE, or remove it first: ~m"},
    {"a map never replaces a value of the user's",
     NULL,
     {"+m=1", "m={a: 1}"},
     "error: 'm' is a value: a map cannot replace it\n"
     "  command line, argument 2: m={a: 1}\n"
     "  remove it first: ~m"},
    {"a group is not a string",
     NULL,
     {"run.name={a: 1}"},
     "error: 'run.name' must be a string, got a map\n"
     "  command line, argument 1: run.name={a: 1}   (name of the run; empty: <model>-<dataset>; default '')"},
    {"removed first", NULL, {"+m={a: 1}", "~m", "+m=3"}, "+m=3\n"},
    {"an item of a list of maps", NULL, {"+l=[{a: 1}, x]", "l.1=y"}, "+l.1=y\n"},
    {"a whole section by several words",
     NULL,
     {"training={epochs: 2}", "training={batch_size: 3}"},
     "training.epochs=2\ntraining.batch_size=3\n"},

    /* ---- messages ---- */
    {"an unknown key",
     NULL,
     {"seed=1", "seed=2", "optimizer.learning_rat=1e-4"},
     "error: unknown key 'optimizer.learning_rat'\n"
     "  command line, argument 3: optimizer.learning_rat=1e-4\n"
     "  did you mean 'optimizer.lr'? to add a new key, write +optimizer.learning_rat=1e-4\n"
     "  optimizer 'adamw' has: lr weight_decay beta1 beta2 eps no_decay bias_correction update"},
    {"a value out of range",
     NULL,
     {"model=deep"},
     "error: 'model.depth' must be in [1,512], got 0\n"
     "  configs/model/deep.yaml:7:12   (vit: number of blocks; default 12)"},
    {"no such option",
     NULL,
     {"model=resnet19"},
     "error: no option 'resnet19' in group 'model'\n"
     "  " OPTIONS_OF_MODEL},
    {"a sweep",
     NULL,
     {"optimizer.lr=1,2"},
     "error: 'optimizer.lr=1,2' is a sweep: add -m, or write optimizer.lr=[1,2] for a list"},
    {"a sweep by function",
     NULL,
     {"seed=range(0,3)"},
     "error: 'seed=range(0,3)' is a sweep: add -m, or write seed='range(0,3)' for a string"},
    {"a key without a near one",
     NULL,
     {"frobnicate=1"},
     "error: unknown key 'frobnicate'\n"
     "  command line, argument 1: frobnicate=1\n"
     "  to add a new key, write +frobnicate=1\n"
     "  top-level keys: seed device auto_device min_gpu_memory_mb wait_for_gpu gpu_wait_timeout_minutes\n"
     "    gpu_check_interval_seconds min_batch_size max_retries precision total_clients clients_per_round rounds\n"
     "    parallel_clients repeats protocol model backbone dataset optimizer schedule loss backend run training\n"
     "    transform augment graph memory loss_scale claims observe hooks dist federate partition network\n"
     "    edge_network world attack privacy comm server_optimizer method aggregator augmentation policy"},
    {"a key too short to guess at",
     NULL,
     {"a=1"},
     "error: unknown key 'a'\n"
     "  command line, argument 1: a=1\n"
     "  to add a new key, write +a=1\n"
     "  top-level keys: seed device auto_device min_gpu_memory_mb wait_for_gpu gpu_wait_timeout_minutes\n"
     "    gpu_check_interval_seconds min_batch_size max_retries precision total_clients clients_per_round rounds\n"
     "    parallel_clients repeats protocol model backbone dataset optimizer schedule loss backend run training\n"
     "    transform augment graph memory loss_scale claims observe hooks dist federate partition network\n"
     "    edge_network world attack privacy comm server_optimizer method aggregator augmentation policy"},
    {"a key of another section",
     NULL,
     {"epochs=3"},
     "error: unknown key 'epochs'\n"
     "  command line, argument 1: epochs=3\n"
     "  did you mean 'training.epochs'? to add a new key, write +epochs=3\n"
     "  training has: epochs steps batch_size gradient_accumulation_steps effective_batch_size eval_batch_size grain\n"
     "    norm_group num_workers num_train_samples eval_every_steps checkpoint_every_steps clip_norm ema_decay\n"
     "    patience clear_cache_every_n_rounds keep_checkpoints"},
    {"a group mistyped",
     NULL,
     {"modle=cnn"},
     "error: unknown key 'modle'\n"
     "  command line, argument 1: modle=cnn\n"
     "  did you mean 'model'? to add a new key, write +modle=cnn\n"
     "  top-level keys: seed device auto_device min_gpu_memory_mb wait_for_gpu gpu_wait_timeout_minutes\n"
     "    gpu_check_interval_seconds min_batch_size max_retries precision total_clients clients_per_round rounds\n"
     "    parallel_clients repeats protocol model backbone dataset optimizer schedule loss backend run training\n"
     "    transform augment graph memory loss_scale claims observe hooks dist federate partition network\n"
     "    edge_network world attack privacy comm server_optimizer method aggregator augmentation policy"},
    {"a key added below a section of the core",
     NULL,
     {"+hooks.on_evalution=true"},
     "error: unknown key 'hooks.on_evalution'\n"
     "  command line, argument 1: +hooks.on_evalution=true\n"
     "  did you mean 'hooks.on_evaluation'?\n"
     "  hooks has: on_start on_evaluation on_checkpoint on_oom on_end"},
    {"an unknown key inside a map",
     NULL,
     {"training={epochz: 3}"},
     "error: unknown key 'training.epochz'\n"
     "  command line, argument 1: training={epochz: 3}\n"
     "  did you mean 'training.epochs'?\n"
     "  training has: epochs steps batch_size gradient_accumulation_steps effective_batch_size eval_batch_size grain\n"
     "    norm_group num_workers num_train_samples eval_every_steps checkpoint_every_steps clip_norm ema_decay\n"
     "    patience clear_cache_every_n_rounds keep_checkpoints"},
    {"a key of an unknown policy",
     NULL,
     {"policy.secnd.weight=1"},
     "error: unknown key 'policy.secnd.weight'\n"
     "  command line, argument 1: policy.secnd.weight=1\n"
     "  did you mean 'second'?\n"
     "  " OPTIONS_OF_POLICY},
    {"an unknown key removed",
     NULL,
     {"~trainin.epochs"},
     "error: unknown key 'trainin.epochs'\n"
     "  command line, argument 1: ~trainin.epochs\n"
     "  did you mean 'training.epochs'?\n"
     "  training has: epochs steps batch_size gradient_accumulation_steps effective_batch_size eval_batch_size grain\n"
     "    norm_group num_workers num_train_samples eval_every_steps checkpoint_every_steps clip_norm ema_decay\n"
     "    patience clear_cache_every_n_rounds keep_checkpoints"},
    {"+ for a key that exists",
     NULL,
     {"+seed=3"},
     "error: 'seed' exists already: to change it, write seed=3\n"
     "  command line, argument 1: +seed=3"},
    {"+ on a group that is chosen",
     NULL,
     {"+model=mlp"},
     "error: 'model' is chosen already: to choose another, write model=mlp\n"
     "  command line, argument 1: +model=mlp"},
    {"an integer is not a float",
     NULL,
     {"training.epochs=3.0"},
     "error: 'training.epochs' must be an integer, got 3.0\n"
     "  command line, argument 1: training.epochs=3.0   (passes over the training data; default 5)"},
    {"a quoted number is a string",
     NULL,
     {"seed='3'"},
     "error: 'seed' must be an integer, got the string '3'\n"
     "  command line, argument 1: seed='3'   (seed of initial weights, sample order, augmentation and dropout; default "
     "1)"},
    {"only true and false",
     NULL,
     {"augment.flip=yes"},
     "error: 'augment.flip' must be true or false, got yes\n"
     "  command line, argument 1: augment.flip=yes   (mirror each training image with probability 1/2; default false)"},
    {"names of an enum",
     NULL,
     {"model.norm=bath"},
     "error: 'model.norm' must be one of none|batch|layer, got bath\n"
     "  command line, argument 1: model.norm=bath   (cnn: kind of normalisation; default none)"},
    {"the empty string is not a number",
     NULL,
     {"seed="},
     "error: 'seed' must be an integer, got the string ''\n"
     "  command line, argument 1: seed=   (seed of initial weights, sample order, augmentation and dropout; default "
     "1)"},
    {"a value for a section",
     NULL,
     {"training=5"},
     "error: no option '5' in group 'training'\n"
     "  available: cnn long mlp old   searched: configs"},
    {"a value for a section that is not a group",
     NULL,
     {"memory=5"},
     "error: 'memory' holds keys and is not a value itself\n"
     "  command line, argument 1: memory=5\n"
     "  write memory.KEY=VALUE, or memory={KEY: VALUE}"},
    {"a list for a group",
     NULL,
     {"model=[cnn,mlp]"},
     "error: 'model' holds keys and is not a value itself\n"
     "  command line, argument 1: model=[cnn,mlp]\n"
     "  write model=OPTION, or model.KEY=VALUE"},
    {"an id set by itself",
     NULL,
     {"model.id=mlp"},
     "error: 'model.id' cannot be set directly: to choose a plugin, write model=mlp\n"
     "  command line, argument 1: model.id=mlp"},
    {"a word without =",
     NULL,
     {"resume"},
     "error: 'resume' is not an override: write KEY=VALUE\n"
     "  command line, argument 1: resume"},
    {"no key",
     NULL,
     {"=3"},
     "error: '' is not a key: write names joined by dots, as in optimizer.lr\n"
     "  command line, argument 1: =3"},
    {"an empty name in a key",
     NULL,
     {"a..b=3"},
     "error: 'a..b' is not a key: write names joined by dots, as in optimizer.lr\n"
     "  command line, argument 1: a..b=3"},
    {"a list that is not closed",
     NULL,
     {"dataset.mean=[1"},
     "error: not valid YAML: did not find expected ',' or ']' while parsing a flow sequence\n"
     "  command line, argument 1: dataset.mean=[1"},
    {"a glued colon",
     NULL,
     {"training={epochs:3}"},
     "error: 'epochs:3' needs a space after the colon: {key: value}\n"
     "  command line, argument 1: training={epochs:3}"},
    {"a word that is not UTF-8", NULL, {"run.name=\xff"}, "error: argument 1 is not valid UTF-8"},
    {"+= on a value that is not a list",
     NULL,
     {"seed+=[1]"},
     "error: 'seed' is not a list: += appends to lists\n"
     "  command line, argument 1: seed+=[1]"},
    {"an item that is not there",
     NULL,
     {"dataset.mean.1=3"},
     "error: 'dataset.mean.1' does not exist: the list has 1 item\n"
     "  command line, argument 1: dataset.mean.1=3\n"
     "  items count from 0, as in dataset.mean.0=VALUE; to append one, write dataset.mean+=[VALUE]"},
    {"a wrong item",
     NULL,
     {"dataset.mean=[0.5,x]"},
     "error: 'dataset.mean' must be a list of numbers, but item 1 is x\n"
     "  command line, argument 1: dataset.mean=[0.5,x]   (files: per channel, the files' own; default [0.25])"},
    {"~key=value with another value",
     NULL,
     {"~training.epochs=8"},
     "error: 'training.epochs' is not removed: its value is 7, not 8\n"
     "  command line, argument 1: ~training.epochs=8"},
    {"~key=[list] with another list",
     NULL,
     {"~dataset.mean=[1,2]"},
     "error: 'dataset.mean' is not removed: its value is [0.5], not [1, 2]\n"
     "  command line, argument 1: ~dataset.mean=[1,2]"},
    {"~key={map} of the user's", NULL, {"+m={a: 1, b: 2}", "~m={a: 1, b: 2}"}, "+m\n"},
    {"~key={map} with another map",
     NULL,
     {"+m={a: 1}", "~m={a: 2}"},
     "error: 'm' is not removed: its value differs\n"
     "  command line, argument 2: ~m={a: 2}"},
    {"+ on an existing item",
     NULL,
     {"+dataset.mean.0=1"},
     "error: 'dataset.mean.0' exists already: to change it, write dataset.mean.0=1\n"
     "  command line, argument 1: +dataset.mean.0=1"},
    {"+ on an item that is not there",
     NULL,
     {"+dataset.mean.1=1"},
     "error: 'dataset.mean.1' does not exist: the list has 1 item\n"
     "  command line, argument 1: +dataset.mean.1=1\n"
     "  items count from 0, as in dataset.mean.0=VALUE; to append one, write dataset.mean+=[VALUE]"},
    {"no such experiment",
     NULL,
     {"experiment=slow"},
     "error: no option 'slow' in group 'experiment'\n"
     "  available: fast   searched: configs"},
    {"no such experiment, as Hydra writes it",
     NULL,
     {"+experiment=slow"},
     "error: no option 'slow' in group 'experiment'\n"
     "  available: fast   searched: configs"},
    {"a group removed",
     NULL,
     {"~model"},
     "error: no option is chosen for group 'model': write model=OPTION\n"
     "  configs/config.yaml:2:12\n"
     "  " OPTIONS_OF_MODEL},
    {"a removed group that was not chosen",
     "whole",
     {"~experiment"},
     "error: no defaults list names the group 'experiment'\n"
     "  command line, argument 1: ~experiment"},
    {"a mandatory value",
     NULL,
     {"dataset=open"},
     "error: 'dataset.path' is mandatory and has no value: write dataset.path=VALUE\n"
     "  configs/dataset/open.yaml:2:7   (files: folder of the files)"},
    {"a mandatory value given", NULL, {"dataset=open", "dataset.path=d"}, "dataset.path=d\n"},
    {"a required value that is not given",
     NULL,
     {"dataset=open", "~dataset.path"},
     "error: 'dataset.path' is mandatory and has no value: write dataset.path=VALUE\n"
     "  (files: folder of the files)"},
    {"an unknown key in an option file",
     NULL,
     {"dataset=typo"},
     "error: unknown key 'dataset.clases'\n"
     "  configs/dataset/typo.yaml:3:1\n"
     "  did you mean 'dataset.classes'?\n"
     "  dataset 'files' has: path classes mean validation_fraction std"},
    {"an option file for no plugin",
     NULL,
     {"dataset=plain"},
     "error: configs/dataset/plain.yaml does not name its plugin\n"
     "  write: id: PLUGIN"},
    {"defaults lists in a cycle",
     NULL,
     {"model=loop"},
     "error: defaults lists form a cycle: configs/model/loop.yaml -> configs/model/pool.yaml -> "
     "configs/model/loop.yaml"},
    {"an option file that cannot be read",
     NULL,
     {"model=unread"},
     "error: duplicate key 'id' (first in line 1)\n"
     "  configs/model/unread.yaml:2:1"},
    {"no such configuration",
     "nowhere",
     {0},
     "error: no configuration 'nowhere'\n"
     "  available: after_group back bad_default batch_auto batch_kept batch_product batch_wrong before bodied\n"
     "    both_names brought by_environment choose config empty id_refers listed means not_a_map nulls old_names\n"
     "    over perhaps policies policies_of_maps policies_perhaps policies_twice policy_id policy_id_wrong\n"
     "    policy_ids policy_none policy_of_group policy_of_unknown policy_scalar rates refers refers_wrong robust\n"
     "    scalar_on_map self_first slash sparse threads whole widened wrong   searched: configs"},
    {"a configuration that is a list",
     "not_a_map",
     {0},
     "error: a configuration is a map of keys\n"
     "  configs/not_a_map.yaml:1:1"},
    {"a scalar never replaces a map",
     "scalar_on_map",
     {0},
     "error: 'training' is a group: a scalar cannot replace it\n"
     "  configs/scalar_on_map.yaml:2:11\n"
     "  choose an option in the defaults list: - training: OPTION"},
    {"null is not an integer",
     "nulls",
     {0},
     "error: 'seed' must be an integer, got null\n"
     "  configs/nulls.yaml:4:6   (seed of initial weights, sample order, augmentation and dropout; default 1)"},
    {"defaults that are not a list",
     "bad_default",
     {"model=cnn", "dataset=small", "optimizer=sgd", "schedule=constant", "loss=cross_entropy", "backend=cpu"},
     "error: 'defaults' must be a list\n"
     "  configs/bad_default.yaml:1:11"},
    {"an option left open",
     "choose",
     {0},
     "error: no option is chosen for group 'model': write model=OPTION\n"
     "  configs/choose.yaml:3:12\n"
     "  " OPTIONS_OF_MODEL},
    {"an option left open and chosen", "choose", {"model=vit"}, "model.id=vit\n"},
    {"every error at once",
     "wrong",
     {"model=mlp", "training.batch_size=x", "trainin.epochs=3"},
     "error: no group 'modell'\n"
     "  configs/wrong.yaml:3:13\n"
     "  a group is a folder on the search path, or one of: model dataset optimizer schedule loss backend comm "
     "augmentation policy\n"
     "error: no file 'missing.yaml' on the search path\n"
     "  configs/wrong.yaml:4:5\n"
     "error: an entry of a defaults list is 'group: option', '_self_', or the name of a file\n"
     "  configs/wrong.yaml:5:5\n"
     "error: 'model' is a group: a scalar cannot replace it\n"
     "  configs/wrong.yaml:10:8\n"
     "  choose an option in the defaults list: - model: OPTION\n"
     "error: 'dataset' is a group: a list cannot replace it\n"
     "  configs/wrong.yaml:11:10\n"
     "  choose an option in the defaults list: - dataset: OPTION\n"
     "error: the key 'optimizer.lr' has a dot: in a file, write one key below the other\n"
     "  configs/wrong.yaml:12:1\n"
     "error: '_self_' appears twice in a defaults list\n"
     "  configs/wrong.yaml:7:5\n"
     "error: unknown key 'trainin.epochs'\n"
     "  command line, argument 3: trainin.epochs=3\n"
     "  did you mean 'training.epochs'? to add a new key, write +trainin.epochs=3\n"
     "  training has: epochs steps batch_size gradient_accumulation_steps effective_batch_size eval_batch_size grain\n"
     "    norm_group num_workers num_train_samples eval_every_steps checkpoint_every_steps clip_norm ema_decay\n"
     "    patience clear_cache_every_n_rounds keep_checkpoints\n"
     "error: unknown key 'training.epoch'\n"
     "  configs/wrong.yaml:13:25\n"
     "  did you mean 'training.epochs'?\n"
     "error: unknown key 'trainig'\n"
     "  configs/wrong.yaml:8:1\n"
     "  did you mean 'training'?\n"
     "  top-level keys: seed device auto_device min_gpu_memory_mb wait_for_gpu gpu_wait_timeout_minutes\n"
     "    gpu_check_interval_seconds min_batch_size max_retries precision total_clients clients_per_round rounds\n"
     "    parallel_clients repeats protocol model backbone dataset optimizer schedule loss backend run training\n"
     "    transform augment graph memory loss_scale claims observe hooks dist federate partition network\n"
     "    edge_network world attack privacy comm server_optimizer method aggregator augmentation policy\n"
     "error: 'seed' must be an integer, got a map\n"
     "  configs/wrong.yaml:9:7   (seed of initial weights, sample order, augmentation and dropout; default 1)\n"
     "error: 'training.epochs' must be an integer, got 1.0\n"
     "  configs/wrong.yaml:13:20   (passes over the training data; default 5)\n"
     "error: 'training.batch_size' must be auto or an integer, got x\n"
     "  command line, argument 2: training.batch_size=x   (samples in a micro-batch; auto: a policy chooses; default "
     "64)"},
};
#endif
