/* The emulated device detects mistakes that a GPU refuses or computes wrongly: calls that no capture allows,
 * misaligned addresses, blocks that depend on each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include <cmocka.h>
}

#include "kernel.cuh"

namespace
{
#define OK(call) assert_int_equal((call), cudaSuccess)

const cuda_geometry one_thread = {{1, 1, 1}, 1, 0};

cudaStream_t make_stream()
{
  cudaStream_t s = nullptr;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  return s;
}

/* ---- capture ---- */

/* The objects of a thread that captures `stream`. */
struct scene {
  cudaStream_t stream, other;
  cudaEvent_t event; /* recorded by the other stream */
  void *device, *pinned, *pageable;

  scene() : stream(make_stream()), other(make_stream()), event(nullptr), device(nullptr), pinned(nullptr)
  {
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    OK(cudaMalloc(&device, 64));
    OK(cudaHostAlloc(&pinned, 64, cudaHostAllocDefault));
    pageable = malloc(64);
    memset(pageable, 1, 64);
    memset(pinned, 1, 64);
    OK(cudaEventRecord(event, other));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  }
  ~scene()
  {
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamSynchronize(other));
    OK(cudaEventDestroy(event));
    OK(cudaFree(device));
    OK(cudaFreeHost(pinned));
    OK(cudaStreamDestroy(stream));
    OK(cudaStreamDestroy(other));
    free(pageable);
  }
};

/* Asserts that the call fails with this error and invalidates the capture. */
void check_refused(cudaError_t expected, const std::function<cudaError_t(scene &)> &call)
{
  scene s;
  cudaGraph_t graph = nullptr;
  OK(cudaMemsetAsync(s.device, 0, 64, s.stream));
  assert_int_equal(call(s), expected);
  assert_int_equal(cudaMemsetAsync(s.device, 0, 64, s.stream), cudaErrorStreamCaptureInvalidated);
  assert_int_equal(emulated_launch(s.stream, one_thread, [] {}), BRIM_EDEVICE);
  assert_int_equal(cudaStreamEndCapture(s.stream, &graph), cudaErrorStreamCaptureInvalidated);
  assert_null(graph);
}

void test_operations_that_no_graph_can_contain_end_a_capture(void **)
{
  const cudaError_t unsupported = cudaErrorStreamCaptureUnsupported;
  void *memory = nullptr;
  check_refused(unsupported, [&](scene &) { return cudaMalloc(&memory, 64); });
  check_refused(unsupported, [](scene &s) { return cudaFree(s.device); });
  check_refused(unsupported, [&](scene &) { return cudaHostAlloc(&memory, 64, cudaHostAllocDefault); });
  check_refused(unsupported, [](scene &s) { return cudaFreeHost(s.pinned); });
  check_refused(unsupported, [](scene &) { return cudaDeviceReset(); });
  check_refused(unsupported, [](scene &s) { return cudaStreamSynchronize(s.stream); });
  check_refused(unsupported, [](scene &s) { return cudaStreamSynchronize(s.other); });
  check_refused(unsupported, [](scene &s) { return cudaEventSynchronize(s.event); });
  check_refused(unsupported, [](scene &s) { return cudaEventQuery(s.event); });
  check_refused(unsupported,
                [](scene &s) { return cudaMemcpyAsync(s.device, s.pageable, 64, cudaMemcpyHostToDevice, s.stream); });
  check_refused(unsupported,
                [](scene &s) { return cudaMemcpyAsync(s.pageable, s.device, 64, cudaMemcpyDeviceToHost, s.stream); });
  assert_null(memory);
}

void test_a_capture_is_lost_by_waiting_across_its_border(void **)
{
  check_refused(cudaErrorStreamCaptureIsolation, [](scene &s) { return cudaStreamWaitEvent(s.stream, s.event, 0); });
  for (const bool by_host : {false, true})
    check_refused(cudaErrorCapturedEvent, [=](scene &s) {
      OK(cudaEventRecord(s.event, s.stream));
      return by_host ? cudaEventSynchronize(s.event) : cudaStreamWaitEvent(s.other, s.event, 0);
    });
  check_refused(cudaErrorStreamCaptureWrongThread, [](scene &s) {
    cudaError_t e = cudaSuccess;
    std::thread([&] {
      cudaGraph_t graph = nullptr;
      e = cudaStreamEndCapture(s.stream, &graph);
    }).join();
    return e;
  });
}

void test_work_and_other_threads_leave_a_capture_as_it_is(void **)
{
  scene s;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  int *count = static_cast<int *>(s.device);
  OK(cudaMemcpyAsync(s.device, s.pinned, 64, cudaMemcpyHostToDevice, s.stream));
  OK(cudaMemsetAsync(s.device, 0, 64, s.stream));
  assert_int_equal(emulated_launch(s.stream, one_thread, [=] { count[0]++, count[1] = 7; }), BRIM_OK);
  OK(cudaMemcpyAsync(s.pinned, s.device, 64, cudaMemcpyDeviceToHost, s.stream));
  std::thread([&] {
    void *memory = nullptr;
    OK(cudaMalloc(&memory, 64));
    OK(cudaStreamSynchronize(s.other));
    OK(cudaEventSynchronize(s.event));
    OK(cudaFree(memory));
  }).join();
  OK(cudaStreamEndCapture(s.stream, &graph));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  OK(cudaStreamSynchronize(s.stream));
  assert_int_equal(static_cast<uint8_t *>(s.pinned)[0], 1); /* nothing has run yet */
  OK(cudaGraphLaunch(exec, s.stream));
  OK(cudaGraphLaunch(exec, s.stream));
  OK(cudaStreamSynchronize(s.stream));
  assert_int_equal(static_cast<int *>(s.pinned)[0], 1);
  assert_int_equal(static_cast<int *>(s.pinned)[1], 7);
  OK(cudaGraphExecDestroy(exec));
}

/* ---- alignment ---- */

/* Returns the output of a child that runs the body in a kernel. The child must fail. */
std::string last_words(const std::function<void()> &body)
{
  int pipes[2];
  char text[4096] = "";
  assert_int_equal(pipe(pipes), 0);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(pipes[1], STDERR_FILENO);
    const cudaStream_t s = make_stream();
    if (emulated_launch(s, one_thread, body) == BRIM_OK) (void)cudaStreamSynchronize(s);
    _exit(0);
  }
  close(pipes[1]);
  for (size_t used = 0; used < sizeof text - 1;) {
    const ssize_t n = read(pipes[0], text + used, sizeof text - 1 - used);
    if (n <= 0) break;
    used += static_cast<size_t>(n);
  }
  close(pipes[0]);
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
  return text;
}

alignas(16) float values[16];

void test_a_vector_at_an_odd_address_ends_the_program(void **)
{
  const char *says = "misaligned address";
  assert_non_null(strstr(last_words([] { cuda_pack<float>().load(values + 1); }).c_str(), says));
  assert_non_null(strstr(last_words([] {
                           cuda_pack<float> pack = {};
                           pack.store(values + 2);
                         }).c_str(),
                         says));
  assert_non_null(strstr(last_words([] { *reinterpret_cast<double *>(values + 1) = 1; }).c_str(), says));
}

/* ---- order ---- */

/* Each block's result follows from the previous block's, so no GPU runs this kernel as intended. */
std::vector<int> run_chain(const char *seed)
{
  const cudaStream_t s = make_stream();
  std::vector<int> chain(4 * 3 * 2, 0);
  setenv("EMULATED_ORDER", seed, 1);
  assert_int_equal(emulated_launch(s, cuda_geometry{{4, 3, 2}, 1, 0},
                                   [&chain] {
                                     const size_t i = (blockIdx.z * 3 + blockIdx.y) * 4 + blockIdx.x;
                                     chain[i] = i == 0 ? 1 : chain[i - 1] + 1;
                                   }),
                   BRIM_OK);
  OK(cudaStreamSynchronize(s));
  OK(cudaStreamDestroy(s));
  unsetenv("EMULATED_ORDER");
  return chain;
}

void test_blocks_that_depend_on_each_other_give_other_numbers_in_other_orders(void **)
{
  std::vector<int> ascending;
  for (int i = 1; i <= 24; i++) ascending.push_back(i);
  assert_true(run_chain("0") == ascending);
  const std::vector<int> first = run_chain("1");
  assert_true(first != ascending);
  assert_true(run_chain("2") != first);
  assert_true(run_chain("1") == first);
}
} // namespace

int main()
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_operations_that_no_graph_can_contain_end_a_capture),
      cmocka_unit_test(test_a_capture_is_lost_by_waiting_across_its_border),
      cmocka_unit_test(test_work_and_other_threads_leave_a_capture_as_it_is),
      cmocka_unit_test(test_a_vector_at_an_odd_address_ends_the_program),
      cmocka_unit_test(test_blocks_that_depend_on_each_other_give_other_numbers_in_other_orders),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
