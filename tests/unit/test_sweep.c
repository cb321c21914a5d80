/* Tests the expansion of sweeps: the jobs and their order, and the errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "config/override.h"
#include "config/sweep.h"

#define WORDS_MAX 4

typedef struct expansion_case {
  const char *word[WORDS_MAX];
  const char *jobs;  /* one line for each job: its words, separated by spaces */
  const char *error; /* or the error, or NULL */
} expansion_case;

static const expansion_case cases[] = {
    /* Words without a sweep are one job. */
    {{"seed=1", "model=mlp"}, "seed=1 model=mlp\n", NULL},
    {{"l=[1,2]", "m={a: 1, b: 2}"}, "l=[1,2] m={a: 1, b: 2}\n", NULL},
    {{"name='a,b'"}, "name='a,b'\n", NULL},
    {{"name=\"a,b\""}, "name=\"a,b\"\n", NULL},
    {{"k="}, "k=\n", NULL},
    {{"~k"}, "~k\n", NULL},
    {{"~k=1"}, "~k=1\n", NULL},
    {{"+k=(a,b)"}, "+k=(a,b)\n", NULL},
    /* commas */
    {{"a=1,2"}, "a=1\na=2\n", NULL},
    {{"a=1, 2 ,3"}, "a=1\na=2\na=3\n", NULL},
    {{"a=x=1,y=2"}, "a=x=1\na=y=2\n", NULL},
    {{"a=[1,2],[3]"}, "a=[1,2]\na=[3]\n", NULL},
    {{"a={b: 1, c: 2},{b: 3}"}, "a={b: 1, c: 2}\na={b: 3}\n", NULL},
    {{"a='x,y',z"}, "a='x,y'\na=z\n", NULL},
    {{"a=it's,his"}, "a=it's\na=his\n", NULL},
    {{"a='',b"}, "a=''\na=b\n", NULL},
    {{"+a=1,2"}, "+a=1\n+a=2\n", NULL},
    {{"++a=1,2"}, "++a=1\n++a=2\n", NULL},
    {{"l+=[1],[2]"}, "l+=[1]\nl+=[2]\n", NULL},
    {{"a=1,1"}, "a=1\na=1\n", NULL},
    /* the product: the last key fastest */
    {{"a=1,2", "b=x,y"}, "a=1 b=x\na=1 b=y\na=2 b=x\na=2 b=y\n", NULL},
    {{"a=1,2", "c=0", "b=x,y"}, "a=1 c=0 b=x\na=1 c=0 b=y\na=2 c=0 b=x\na=2 c=0 b=y\n", NULL},
    {{"b=x,y,z", "a=1,2"}, "b=x a=1\nb=x a=2\nb=y a=1\nb=y a=2\nb=z a=1\nb=z a=2\n", NULL},
    /* ranges: the end is not included */
    {{"a=range(3)"}, "a=0\na=1\na=2\n", NULL},
    {{"a=range(1,4)"}, "a=1\na=2\na=3\n", NULL},
    {{"a=range(1,10,4)"}, "a=1\na=5\na=9\n", NULL},
    {{"a=range(1, 9, 4)"}, "a=1\na=5\n", NULL},
    {{"a=range(3,0,-1)"}, "a=3\na=2\na=1\n", NULL},
    {{"a=range(-1,2)"}, "a=-1\na=0\na=1\n", NULL},
    {{"a=range(0,0.5,0.1)"}, "a=0.0\na=0.1\na=0.2\na=0.3\na=0.4\n", NULL},
    {{"a=range(1,2.5,0.5)"}, "a=1.0\na=1.5\na=2.0\n", NULL},
    {{"a=range(-0.2,0.1,0.1)"}, "a=-0.2\na=-0.1\na=0.0\n", NULL},
    {{"a=range(1e-4,3.5e-4,1e-4)"}, "a=0.0001\na=0.0002\na=0.0003\n", NULL},
    {{"a=range(1e2,3e2,1e2)"}, "a=100.0\na=200.0\n", NULL},
    {{"a=range(1.0,3.0)"}, "a=1.0\na=2.0\n", NULL},
    {{"a=range(2),7"}, "a=0\na=1\na=7\n", NULL},
    {{"a='range(3)'"}, "a='range(3)'\n", NULL},
    {{"a=range(1,2,3,4)"}, NULL, "a range is written range(START,STOP,STEP), range(START,STOP) or range(STOP)"},
    {{"a=range()"}, NULL, "'' in a range is not a number of at most 15 digits"},
    {{"a=range(x)"}, NULL, "'x' in a range is not a number of at most 15 digits"},
    {{"a=range(1,2,0x1)"}, NULL, "'0x1' in a range is not a number of at most 15 digits"},
    {{"a=range(.)"}, NULL, "'.' in a range is not a number of at most 15 digits"},
    {{"a=range(1e)"}, NULL, "'1e' in a range is not a number of at most 15 digits"},
    {{"a=range(1e99)"}, NULL, "'1e99' in a range is not a number of at most 15 digits"},
    {{"a=range(1234567890123456)"}, NULL, "'1234567890123456' in a range is not a number of at most 15 digits"},
    {{"a=range(0,1,1e-30)"}, NULL, "the numbers of a range differ too much in size"},
    {{"a=range(0,1,0)"}, NULL, "a range's step must not be 0"},
    {{"a=range(0)"}, NULL, "the range is empty: its end is not included"},
    {{"a=range(1,4,-1)"}, NULL, "the range is empty: its end is not included"},
    {{"a=range(1000000)"}, NULL, "the range has 1000000 values; a sweep has at most 10000 jobs"},
    /* globs: the options of a group */
    {{"model=glob(*)"}, "model=cnn\nmodel=mlp\nmodel=resnet18\nmodel=resnet34\n", NULL},
    {{"+model=glob(resnet*)"}, "+model=resnet18\n+model=resnet34\n", NULL},
    {{"model=glob([c*,*34])"}, "model=cnn\nmodel=resnet34\n", NULL},
    {{"model=glob(*,exclude=resnet*)"}, "model=cnn\nmodel=mlp\n", NULL},
    {{"model=glob('*', exclude=[c*, mlp])"}, "model=resnet18\nmodel=resnet34\n", NULL},
    {{"model=vit,glob(c*)"}, "model=vit\nmodel=cnn\n", NULL},
    {{"model=glob(vit*)"}, NULL, "no option of group 'model' matches glob(vit*)"},
    {{"optimizer.lr=glob(*)"}, NULL, "glob() expands to the options of a group, and 'optimizer.lr' is not a group"},
    {{"model=glob()"},
     NULL,
     "a glob is written glob(PATTERN), glob([PATTERN,PATTERN]) or glob(PATTERN,exclude=PATTERN)"},
    {{"model=glob(a,b)"},
     NULL,
     "a glob is written glob(PATTERN), glob([PATTERN,PATTERN]) or glob(PATTERN,exclude=PATTERN)"},
    /* invalid sweeps */
    {{"a=1,"}, NULL, "a value between the commas is missing: write '' for an empty one"},
    {{"a=,1"}, NULL, "a value between the commas is missing: write '' for an empty one"},
    {{"a=1,,2"}, NULL, "a value between the commas is missing: write '' for an empty one"},
    {{"~a=1,2"}, NULL, "a removal cannot be swept: write one '~' for each job"},
    {{"run.dir=x,y"},
     NULL,
     "'run.dir' cannot be swept: it is the sweep's folder, and each job has a numbered one in it"},
    {{"a=range(101)", "b=range(100)"}, NULL, "the sweep has 101 x 100 jobs; at most 10000 are allowed"},
    {{"a=range(9999)", "b=range(9999)", "c=range(9999)", "d=range(9999)"},
     NULL,
     "the sweep has 9999 x 9999 x 9999 x 9999 jobs; at most 10000 are allowed"},
};

static bool options(void *context, const char *group, const char *const **option, size_t *count)
{
  static const char *const models[] = {"cnn", "mlp", "resnet18", "resnet34"};
  (void)context;
  *option = models;
  *count = sizeof models / sizeof models[0];
  return strcmp(group, "model") == 0;
}
static const brim_sweep_groups groups = {options, NULL};

static void print_jobs(const brim_sweep *sweep, brim_text *out)
{
  const char *word[WORDS_MAX];
  for (size_t job = 0; job < sweep->jobs; job++) {
    brim_sweep_words(sweep, job, word);
    for (size_t i = 0; i < sweep->axis_count; i++) brim_text_printf(out, "%s%s", i ? " " : "", word[i]);
    brim_text_add(out, "\n");
  }
}

static void check_case(void **state)
{
  const expansion_case *c = *state;
  brim_arena arena = {0};
  brim_problems problems = {.arena = &arena};
  brim_sweep sweep;
  brim_text jobs = {0};
  size_t count = 0;
  while (count < WORDS_MAX && c->word[count]) count++;
  brim_sweep_expand(&arena, c->word, NULL, count, &groups, &problems, &sweep);
  if (c->error) {
    assert_int_equal(problems.count, 1);
    const char *text = problems.text[0];
    char first[512];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(text, "\n"), text);
    assert_string_equal(first, c->error);
  } else {
    assert_int_equal(problems.count, 0);
    print_jobs(&sweep, &jobs);
    assert_string_equal(brim_text_str(&jobs), c->jobs);
  }
  brim_text_release(&jobs);
  brim_arena_release(&arena);
}

static void ten_thousand_jobs_are_allowed(void **state)
{
  static const char *const words[] = {"a=range(100)", "b=range(100)"};
  const char *word[2];
  brim_arena arena = {0};
  brim_problems problems = {.arena = &arena};
  brim_sweep sweep;
  brim_sweep_expand(&arena, words, NULL, 2, NULL, &problems, &sweep);
  assert_int_equal(problems.count, 0);
  assert_int_equal(sweep.jobs, 10000);
  brim_sweep_words(&sweep, 9999, word);
  assert_string_equal(word[0], "a=99");
  brim_sweep_words(&sweep, 100, word);
  assert_string_equal(word[0], "a=1");
  assert_string_equal(word[1], "b=0");
  brim_arena_release(&arena);
}

static void every_problem_is_reported_with_its_argument(void **state)
{
  static const char *const words[] = {"a=1,", "b=range(0)"};
  static const int numbers[] = {2, 5};
  brim_arena arena = {0};
  brim_problems problems = {.arena = &arena};
  brim_sweep sweep;
  brim_sweep_expand(&arena, words, numbers, 2, NULL, &problems, &sweep);
  assert_int_equal(problems.count, 2);
  assert_non_null(strstr(problems.text[0], "command line, argument 2: a=1,"));
  assert_non_null(strstr(problems.text[1], "command line, argument 5: b=range(0)"));
  brim_arena_release(&arena);
}

static void repeats_are_the_fastest_words(void **state)
{
  static const char *const words[] = {"a=1,2", "seed=7"};
  const char *word[4];
  brim_arena arena = {0};
  brim_problems problems = {.arena = &arena};
  brim_sweep sweep;
  brim_sweep_expand(&arena, words, NULL, 2, NULL, &problems, &sweep);
  brim_sweep_repeat(&arena, 7, 3, &problems, &sweep);
  assert_int_equal(problems.count, 0);
  assert_int_equal(sweep.axis_count, 4);
  assert_int_equal(sweep.jobs, 6);
  brim_sweep_words(&sweep, 4, word);
  assert_string_equal(word[0], "a=2");
  assert_string_equal(word[1], "seed=7");
  assert_string_equal(word[2], "repeats=1");
  assert_string_equal(word[3], "seed=8");
  brim_arena_release(&arena);
}

static void sweeps_that_cannot_be_repeated_are_refused(void **state)
{
  static const struct {
    const char *word;
    int64_t repeats;
    const char *error;
  } refused[] = {{"seed=1,2", 3, "repeats=3 gives each job seeds of its own"},
                 {"repeats=1,2", 1, "'repeats' cannot be swept"},
                 {"a=range(101)", 100, "101 jobs with repeats=100 are too many; at most 10000 are allowed"}};
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
    brim_arena arena = {0};
    brim_problems problems = {.arena = &arena};
    brim_sweep sweep;
    brim_sweep_expand(&arena, &refused[i].word, NULL, 1, NULL, &problems, &sweep);
    brim_sweep_repeat(&arena, 1, refused[i].repeats, &problems, &sweep);
    assert_int_equal(problems.count, 1);
    assert_non_null(strstr(problems.text[0], refused[i].error));
    brim_arena_release(&arena);
  }
}

#define CASES (sizeof cases / sizeof cases[0])
int main(void)
{
  static char name[CASES][256];
  static struct CMUnitTest test[CASES + 4];
  for (size_t i = 0; i < CASES; i++) {
    for (size_t k = 0; k < WORDS_MAX && cases[i].word[k]; k++) {
      const size_t length = strlen(name[i]);
      snprintf(name[i] + length, sizeof name[i] - length, "%s%s", k ? " " : "", cases[i].word[k]);
    }
    test[i] = (struct CMUnitTest){name[i], check_case, NULL, NULL, (void *)&cases[i]};
  }
  test[CASES] = (struct CMUnitTest)cmocka_unit_test(ten_thousand_jobs_are_allowed);
  test[CASES + 1] = (struct CMUnitTest)cmocka_unit_test(every_problem_is_reported_with_its_argument);
  test[CASES + 2] = (struct CMUnitTest)cmocka_unit_test(repeats_are_the_fastest_words);
  test[CASES + 3] = (struct CMUnitTest)cmocka_unit_test(sweeps_that_cannot_be_repeated_are_refused);
  return cmocka_run_group_tests_name("sweep", test, NULL, NULL);
}
