/* Reads multiple-choice questions from JSON lines, and makes the prompts of lm-evaluation-harness from them
 * (github.com/EleutherAI/lm-evaluation-harness, tasks arc, hellaswag, mmlu). */
#ifndef BRIM_CLI_CHOICES_H
#define BRIM_CLI_CHOICES_H
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "brim/status.h"

typedef struct brim_question {
  const char *form; /* "arc", "hellaswag", "mmlu" or "question" */
  int64_t line;     /* in its file, from 1 */
  const char *head; /* precedes the examples and the question; "" or a paragraph */
  const char *body; /* the question, up to the place where an answer follows */
  const char *subject;
  const char **choice; /* the answers, which follow the body after a space */
  size_t count, answer;
} brim_question;

typedef struct brim_questions {
  const char *path;
  brim_question *item;
  size_t count;
} brim_questions;

/* [init] Reads all questions of a file; the arena owns the texts. ELOAD with file and line. */
brim_status brim_questions_read(brim_arena *arena, const char *path, brim_questions *out);
/* Returns the text before the answers: head, the first `shots` other questions of `from` with their answers, and the
 * question. If the question has a subject, the examples have the same subject. ECONFIG if there are too few
 * examples. */
brim_status brim_question_prompt(brim_arena *arena, const brim_questions *of, const brim_question *question,
                                 const brim_questions *from, int64_t shots, const char **out);
/* The length of a text without white space at its end, as Python's str.rstrip() defines it. */
size_t brim_without_space(const char *text, size_t bytes);
#endif
