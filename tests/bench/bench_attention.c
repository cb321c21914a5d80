/* Times attention and its gradient on the cpu backend, compared with the processor's peak:
 *
 *   bench_attention [threads [causal [isa]]]        default: 0 (all), 0, auto
 *
 * For N=4, T=S=512, 12 heads of 64: least milliseconds of RUNS runs, GFLOP/s, and the ratio to the floor: the time of
 * its multiply-adds at the processor's measured peak. */
#include <stdio.h>
#include <stdlib.h>

#include "conformance/bench.h"
#include "conformance/load.h"
#include "peak.h"

#define RUNS 15

static int32_t causal;

static brim_tensor *make(bench *b)
{
  const brim_shape shape = {3, {b->o.batch, 512, 12 * 64}};
  brim_tensor *q = bench_input(b, &shape, "q"), *k = bench_input(b, &shape, "k");
  return brim_attention(b->g, q, k, bench_input(b, &shape, "v"),
                        (brim_attention_options){.heads = 12, .causal = causal});
}

static double least_ms(bench *b, size_t node)
{
  double least = 1e9;
  for (int run = 0; run < RUNS; run++) {
    const double start = now_ms();
    bench_run(b, node, node + 1);
    const double ms = now_ms() - start;
    if (ms < least) least = ms;
  }
  return least;
}

int main(int argc, char **argv)
{
  char settings[96];
  loaded cpu;
  snprintf(settings, sizeof settings, "{threads: %ld, isa: %s}", argc > 1 ? strtol(argv[1], NULL, 10) : 0,
           argc > 3 ? argv[3] : "auto");
  causal = argc > 2 && strtol(argv[2], NULL, 10) != 0;
  if (!load_plugin(&cpu, "backend", "cpu", settings)) return 1;
  const backend on = {"cpu", cpu.plugin->ops, cpu.self};
  const bench_row row = {"attention", make};
  brim_device_info info;
  if (on.ops->describe(cpu.self, 0, &info) != BRIM_OK) return 1;
  const double peak = peak_gflops(info.threads);
  printf("%s, %d threads, peak %.0f GFLOP/s; N=4, T=S=512, 12 heads of 64%s\n", info.name, info.threads, peak,
         causal ? ", causal" : "");
  bench *b = bench_create(&(bench_options){.backend = &on, .row = &row, .seed = 1, .batch = 4});
  double total = 0, flops = 0;
  for (size_t i = 0; i < b->g->node_count; i++) {
    const double ms = least_ms(b, i), work = (double)brim_op_cost(b->g->node[i]).flops;
    printf("%-16s %8.2f ms %8.1f GFLOP/s  %.2f times the floor\n", b->g->node[i]->op, ms, work / ms * 1e-6,
           ms * peak * 1e6 / work);
    total += ms;
    flops += work;
  }
  printf("%-16s %8.2f ms %8.1f GFLOP/s  %.2f times the floor\n", "both", total, flops / total * 1e-6,
         total * peak * 1e6 / flops);
  bench_free(b);
  unload_plugin(&cpu);
  return 0;
}
