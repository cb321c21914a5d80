/* Products by cuBLASLt. The library is column-major: it sees the rows of d [m,n] as columns of d^T [n,m] = B^T A^T. So
 * our second operand is its first, m and n are swapped, and no value is moved. Its bias has one value for each of its
 * rows, which are our columns.
 *
 * To get the same bits in every run, algorithms that split k may use only one reduction scheme:
 * CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, whose partial sums go through scratch in the type of the computation and are
 * added in order. Among the remaining algorithms, brim uses the one in the device profile, or else the library's first
 * suggestion. That suggestion is always the same for one version of the library and one kind of device. */
#include "../product.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "library.h"

enum { CANDIDATES_MAX = 8 /* to be measured */, KEPT_MULTIPLE = 8 /* of CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD */ };

struct cuda_product_plan {
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t first, second, result;
  cublasLtMatmulAlgo_t algorithm;
  size_t scratch_bytes;
  bool accumulate, bias, keep;
};

static cudaDataType_t type_of(uint32_t dtype)
{
  if (dtype == BRIM_DTYPE_F16) return CUDA_R_16F;
  return dtype == BRIM_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* ---- describing ---- */

static brim_status describe_matrix(cublasLtMatrixLayout_t *out, uint32_t dtype, int64_t rows, int64_t columns,
                                   int64_t ld, int64_t batch, int64_t stride)
{
  const int32_t count = (int32_t)batch;
  BRIM_TRY(cuda_blas_check(cublasLtMatrixLayoutCreate(out, type_of(dtype), (uint64_t)columns, (uint64_t)rows, ld),
                           "describing a matrix"));
  BRIM_TRY(
      cuda_blas_check(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
                      "describing a batch"));
  return cuda_blas_check(
      cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
      "describing a batch");
}

static brim_status describe_matrices(cuda_product_plan *plan, const cuda_product *p)
{
  const int64_t batch = cuda_max(1, p->batch);
  const bool ta = p->transpose_a, tb = p->transpose_b;
  if (batch > INT32_MAX) return brim_fail(BRIM_ENOTSUP, "cuBLASLt cannot compute %" PRId64 " products at once", batch);
  BRIM_TRY(describe_matrix(&plan->first, p->type, tb ? p->n : p->k, tb ? p->k : p->n, p->ldb, batch, p->stride_b));
  BRIM_TRY(describe_matrix(&plan->second, p->type, ta ? p->k : p->m, ta ? p->m : p->k, p->lda, batch, p->stride_a));
  return describe_matrix(&plan->result, p->type_d, p->m, p->n, p->ldd, batch, p->stride_d);
}

static brim_status set(cuda_product_plan *plan, cublasLtMatmulDescAttributes_t attribute, const void *value,
                       size_t size)
{
  return cuda_blas_check(cublasLtMatmulDescSetAttribute(plan->operation, attribute, value, size),
                         "describing a product");
}

/* Returns the epilogue of a product. */
static cublasLtEpilogue_t epilogue_of(const cuda_product *p)
{
  if (p->function == CUDA_FUNCTION_NONE) return p->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (p->keep) return p->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  return p->bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
}

static brim_status set_bias(cuda_product_plan *plan, const void *bias)
{
  return set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
}

static brim_status set_kept(cuda_product_plan *plan, void *kept)
{
  return set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &kept, sizeof kept);
}

/* Each run sets the addresses of the bias and the kept values. Until then, a placeholder with the same alignment stands
 * for them. */
static brim_status describe_epilogue(const cuda_backend *b, cuda_product_plan *plan, const cuda_product *p)
{
  const uint32_t epilogue = epilogue_of(p);
  if (p->accumulate && epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    return brim_fail(BRIM_EINTERNAL, "a product that accumulates has no epilogue");
  if (p->keep && p->function != CUDA_FUNCTION_GELU_TANH)
    return brim_fail(BRIM_ENOTSUP, "cuBLASLt can keep only the argument of gelu");
  if (p->keep && (p->ldd % KEPT_MULTIPLE != 0 || p->stride_d % KEPT_MULTIPLE != 0))
    return brim_fail(BRIM_ENOTSUP, "cuBLASLt keeps rows of a multiple of %d values", KEPT_MULTIPLE);
  BRIM_TRY(set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
  if (p->bias) BRIM_TRY(set_bias(plan, b->control));
  if (!p->keep) return BRIM_OK;
  BRIM_TRY(set_kept(plan, b->control));
  BRIM_TRY(set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->ldd, sizeof p->ldd));
  return set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &p->stride_d, sizeof p->stride_d);
}

static brim_status describe(const cuda_backend *b, cuda_product_plan *plan, const cuda_product *p)
{
  const bool tf32 = b->params->tf32 && p->type == BRIM_DTYPE_F32;
  const cublasComputeType_t type = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  const int32_t first = p->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, second = p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  BRIM_TRY(cuda_blas_check(CUDA_BLAS_CALL("product", cublasLtMatmulDescCreate(&plan->operation, type, CUDA_R_32F)),
                           "describing a product"));
  BRIM_TRY(set(plan, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
  BRIM_TRY(set(plan, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
  BRIM_TRY(describe_epilogue(b, plan, p));
  return describe_matrices(plan, p);
}

/* ---- choosing an algorithm ---- */

static brim_status prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
                          const void *value, size_t size)
{
  return cuda_blas_check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, size),
                         "describing a product's limits");
}

static brim_status describe_limits(cublasLtMatmulPreference_t preference, const cuda_product *p)
{
  static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  const uint64_t scratch = CUDA_PRODUCT_SCRATCH_MAX;
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const uint32_t alignment = p->alignment ? p->alignment : CUDA_ALIGNMENT;
  BRIM_TRY(prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &scratch, sizeof scratch));
  BRIM_TRY(prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions));
  for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++)
    BRIM_TRY(prefer(preference, alignments[i], &alignment, sizeof alignment));
  return BRIM_OK;
}

static brim_status no_algorithm(const cuda_product *p)
{
  return brim_fail(BRIM_ENOTSUP,
                   "cuBLASLt has no algorithm for %" PRId64 " products [%" PRId64 ",%" PRId64 "] x [%" PRId64
                   ",%" PRId64 "] with epilogue %d",
                   cuda_max(1, p->batch), p->m, p->k, p->k, p->n, (int)epilogue_of(p));
}

/* Asks the library for suggestions, best first. Fails if there is none. */
static brim_status suggest(const cuda_backend *b, const cuda_product_plan *plan, const cuda_product *p,
                           cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t *result,
                           int *count)
{
  BRIM_TRY(describe_limits(preference, p));
  const cublasStatus_t e =
      cublasLtMatmulAlgoGetHeuristic(b->blas, plan->operation, plan->first, plan->second, plan->result, plan->result,
                                     preference, wanted, result, count);
  /* Some versions report an invalid value for products that they do not support. */
  if (e == CUBLAS_STATUS_NOT_SUPPORTED || e == CUBLAS_STATUS_INVALID_VALUE) return no_algorithm(p);
  BRIM_TRY(cuda_blas_check(e, "choosing an algorithm"));
  int kept = 0;
  for (int i = 0; i < *count; i++)
    if (result[i].state == CUBLAS_STATUS_SUCCESS) result[kept++] = result[i];
  *count = kept;
  return kept > 0 ? BRIM_OK : no_algorithm(p);
}

static void take(cuda_product_plan *plan, const cublasLtMatmulHeuristicResult_t *result)
{
  plan->algorithm = result->algo;
  plan->scratch_bytes = result->workspaceSize;
}

/* ---- the device profile ---- */

/* An algorithm is stored as the words of its struct, which are valid for the same version of the library. */
#define WORDS (sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t))

static void write_choice(const cublasLtMatmulAlgo_t *algorithm, char text[CUDA_PROFILE_CHOICE_MAX])
{
  for (size_t i = 0; i < WORDS; i++) text += snprintf(text, 18, "%s%016" PRIx64, i ? " " : "", algorithm->data[i]);
}

static bool read_choice(const char *text, cublasLtMatmulAlgo_t *out)
{
  int length = 0;
  for (size_t i = 0; i < WORDS; i++, text += length)
    if (sscanf(text, "%16" SCNx64 "%n", &out->data[i], &length) != 1) return false;
  return *text == '\0';
}

/* Uses the algorithm of the profile if the library still supports it. */
static bool take_choice(const cuda_backend *b, cuda_product_plan *plan, const char *text)
{
  cublasLtMatmulAlgo_t algorithm;
  cublasLtMatmulHeuristicResult_t result;
  if (!read_choice(text, &algorithm) ||
      cublasLtMatmulAlgoCheck(b->blas, plan->operation, plan->first, plan->second, plan->result, plan->result,
                              &algorithm, &result) != CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > CUDA_PRODUCT_SCRATCH_MAX)
    return false;
  plan->algorithm = algorithm;
  plan->scratch_bytes = result.workspaceSize;
  return true;
}

typedef struct trial {
  const cuda_product_plan *plan;
  cuda_operands operands;
} trial;

static brim_status try(cuda_backend *b, void *of)
{
  const trial *t = of;
  return cuda_product_run(b, t->plan, &t->operands);
}

/* Returns memory for a trial, or NULL if there is not enough. */
static void *trial_memory(const cuda_product *p, cuda_operands *o)
{
  const int64_t more = cuda_max(1, p->batch) - 1;
  const uint64_t size = brim_dtype_bytes(p->type), size_d = brim_dtype_bytes(p->type_d);
  const uint64_t d = (uint64_t)(more * p->stride_d + p->m * p->ldd) * size_d;
  const uint64_t bytes[] = {(uint64_t)(more * p->stride_a + (p->transpose_a ? p->k : p->m) * p->lda) * size,
                            (uint64_t)(more * p->stride_b + (p->transpose_b ? p->n : p->k) * p->ldb) * size,
                            (uint64_t)p->n * size_d,
                            d,
                            p->keep ? d : 0,
                            CUDA_PRODUCT_SCRATCH_MAX};
  void *part[sizeof bytes / sizeof *bytes];
  void *memory = cuda_library_memory(bytes, sizeof bytes / sizeof *bytes, part);
  if (memory) *o = (cuda_operands){part[0], part[1], part[2], part[3], part[4], part[5]};
  return memory;
}

/* Measures the suggestions and chooses the fastest. */
static brim_status measure(cuda_backend *b, cuda_product_plan *plan, const cuda_product *p,
                           const cublasLtMatmulHeuristicResult_t *result, int count)
{
  trial t = {.plan = plan};
  brim_status status = BRIM_OK;
  float least = 0;
  int best = 0;
  void *memory = trial_memory(p, &t.operands);
  if (!memory) brim_log(BRIM_LOG_WARN, "no device memory to measure products in: the library's suggestion is used");
  for (int i = 0; memory && i < count && status == BRIM_OK; i++) {
    float now = 0;
    take(plan, &result[i]);
    status = cuda_library_time(b, try, &t, &now);
    if (i > 0 && now >= least) continue;
    least = now;
    best = i;
  }
  (void)cudaFree(memory);
  take(plan, &result[best]);
  if (!memory || status != BRIM_OK) return status;
  char key[CUDA_PROFILE_KEY_MAX], choice[CUDA_PROFILE_CHOICE_MAX];
  cuda_product_key(key, p, b->params->tf32);
  write_choice(&plan->algorithm, choice);
  return cuda_profile_add(&b->tuning->profile, b->tuning->device, b->tuning->blas, key, choice);
}

static brim_status choose(cuda_backend *b, cuda_product_plan *plan, const cuda_product *p,
                          cublasLtMatmulPreference_t preference)
{
  cublasLtMatmulHeuristicResult_t result[CANDIDATES_MAX];
  char key[CUDA_PROFILE_KEY_MAX];
  int count = 0;
  cuda_product_key(key, p, b->params->tf32);
  const char *choice =
      b->tuning ? cuda_profile_find(&b->tuning->profile, b->tuning->device, b->tuning->blas, key) : NULL;
  if (choice && take_choice(b, plan, choice)) return BRIM_OK;
  if (choice)
    brim_log(BRIM_LOG_WARN, "%s: the algorithm recorded for '%s' does not work", b->tuning->profile.path, key);
  const bool tune = b->params->tune && b->tuning;
  BRIM_TRY(suggest(b, plan, p, preference, tune ? CANDIDATES_MAX : 1, result, &count));
  if (tune) return measure(b, plan, p, result, count);
  take(plan, &result[0]);
  return BRIM_OK;
}

static brim_status describe_and_choose(cuda_backend *b, cuda_product_plan *plan, const cuda_product *p)
{
  cublasLtMatmulPreference_t preference = NULL;
  BRIM_TRY(describe(b, plan, p));
  BRIM_TRY(cuda_blas_check(cublasLtMatmulPreferenceCreate(&preference), "describing a product's limits"));
  const brim_status status = choose(b, plan, p, preference);
  (void)cublasLtMatmulPreferenceDestroy(preference);
  return status;
}

brim_status cuda_product_prepare(cuda_backend *b, const cuda_product *product, cuda_product_plan **plan,
                                 uint64_t *scratch_bytes)
{
  cuda_product_plan *made = brim_try_calloc(1, sizeof *made);
  if (!made) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the plan of a product");
  made->accumulate = product->accumulate;
  made->bias = product->bias;
  made->keep = product->keep;
  const brim_status status = describe_and_choose(b, made, product);
  if (status != BRIM_OK) {
    cuda_product_release(made);
    return status;
  }
  *scratch_bytes = made->scratch_bytes;
  *plan = made;
  return BRIM_OK;
}

brim_status cuda_product_run(cuda_backend *b, const cuda_product_plan *plan, const cuda_operands *o)
{
  const float one = 1, beta = plan->accumulate && !o->writes ? 1 : 0;
  cuda_product_plan now = *plan; /* a copy of the plan, whose description this run changes */
  if (plan->bias) BRIM_TRY(set_bias(&now, o->bias));
  if (plan->keep) BRIM_TRY(set_kept(&now, o->kept));
  const cublasStatus_t e =
      CUDA_BLAS_CALL("product", cublasLtMatmul(b->blas, plan->operation, &one, o->b, plan->first, o->a, plan->second,
                                               &beta, o->d, plan->result, o->d, plan->result, &plan->algorithm,
                                               o->scratch, plan->scratch_bytes, b->compute));
  return cuda_blas_check(e, "a product");
}

void cuda_product_release(cuda_product_plan *plan)
{
  if (!plan) return;
  if (plan->operation) (void)cublasLtMatmulDescDestroy(plan->operation);
  if (plan->first) (void)cublasLtMatrixLayoutDestroy(plan->first);
  if (plan->second) (void)cublasLtMatrixLayoutDestroy(plan->second);
  if (plan->result) (void)cublasLtMatrixLayoutDestroy(plan->result);
  free(plan);
}
