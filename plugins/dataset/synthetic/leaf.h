/* Samples of clients that each have their own model and inputs: synthetic(alpha, beta) of LEAF (Caldas et al.: LEAF: A
 * Benchmark for Federated Settings, 2018; Shamir, Srebro, Zhang, 2014), in the version of FedProx (Li et al.: Federated
 * Optimization in Heterogeneous Networks, 2020). For client k:
 *
 *     W(c, j), b(c) ~ N(u, 1)     u ~ N(0, alpha)
 *     v(j)          ~ N(B, 1)     B ~ N(0, beta)
 *     x(j)          ~ N(v(j), variance j^-1.2)     j = 1 .. features
 *     class         = argmax over c of sum over j of W(c, j) * x(j) + b(c)
 *
 * alpha and beta are standard deviations, as in the programs of LEAF and FedProx. A client's share of all samples is
 * proportional to 50 + exp(N(4, 2)), which in those programs is its number of samples. */
#ifndef SYNTHETIC_LEAF_H
#define SYNTHETIC_LEAF_H
#include "brim/brim.h"

typedef struct leaf_options {
  int64_t clients, features, classes;
  int64_t train_count, test_count; /* number of samples of all clients */
  uint64_t seed;
  double alpha, beta;
} leaf_options;

typedef struct leaf {
  leaf_options options;
  int64_t *begin[2]; /* [clients + 1]: the first sample of each client, for training and for testing */
  float *model;      /* for each client W, b and v; NULL until they are made */
} leaf;

/* Computes the bytes of all clients' models. Returns ECONFIG if they are too many. */
brim_status leaf_bytes(const leaf_options *options, uint64_t *out);
/* [init] Returns ECONFIG or ENOMEM_HOST. `leaf` must be zeroed or released. */
brim_status leaf_open(leaf *leaf, const leaf_options *options);
void leaf_release(leaf *leaf);
/* [any thread] leaf_client returns the client of a sample; leaf_sample writes the sample. */
int64_t leaf_client(const leaf *leaf, bool test, int64_t index);
void leaf_sample(const leaf *leaf, bool test, int64_t index, float *values, int32_t *label);
#endif
