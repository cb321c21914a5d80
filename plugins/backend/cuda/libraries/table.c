/* The functions that libraries.so.1 provides. */
#include "../device.h"
#include "libraries.h"

const cuda_libraries cuda_libraries_table = {
    .size = sizeof(cuda_libraries),
    .open = cuda_library_open,
    .close = cuda_library_close,
    .product_prepare = cuda_product_prepare,
    .product_run = cuda_product_run,
    .product_release = cuda_product_release,
    .dnn_prefers_last = cuda_dnn_prefers_last,
    .dnn_prepare = cuda_dnn_prepare,
    .dnn_run = cuda_dnn_run,
    .dnn_release = cuda_dnn_release,
    .sdpa_prepare = cuda_sdpa_prepare,
    .sdpa_run = cuda_sdpa_run,
    .sdpa_release = cuda_sdpa_release,
};
