// A plugin in C++17: the SDK's macros and tables work there as in C.
#include <memory>
#include <new>
#include <string>

#include "brim/brim.h"

namespace
{
struct params {
  int64_t depth;
  const char *prefix;
};

const brim_param table[] = {BRIM_PARAM(I64, params, depth, "2", "[1,8]", "number of hidden layers"),
                            BRIM_PARAM(STR, params, prefix, "fc", nullptr, "how their names start"), BRIM_PARAMS_END};

class net
{
public:
  explicit net(const params &p) : depth(p.depth), prefix(p.prefix) {}
  brim_status build(brim_graph *g) const
  {
    brim_tensor *x = brim_flatten(g, brim_input(g));
    for (int64_t i = 0; i < depth; i++) x = brim_relu(g, brim_linear(g, (prefix + std::to_string(i)).c_str(), x, 16));
    brim_output(g, brim_linear(g, "out", x, brim_classes(g)));
    return BRIM_OK;
  }

private:
  int64_t depth;
  std::string prefix;
};

brim_status create(const void *p, void **self)
{
  std::unique_ptr<net> made(new (std::nothrow) net(*static_cast<const params *>(p)));
  if (!made) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the model");
  *self = made.release();
  return BRIM_OK;
}
void destroy(void *self)
{
  delete static_cast<net *>(self);
}
brim_status build(const void *self, brim_graph *g)
{
  return static_cast<const net *>(self)->build(g);
}

const brim_model_ops ops = {sizeof(brim_model_ops), build, BRIM_WRAPS_NOTHING, nullptr};
const brim_plugin plugin = {
    sizeof(brim_plugin), BRIM_MODEL, "in_cpp", "a model in C++", sizeof(params), table, create, destroy, &ops};
const brim_plugin *const plugins[] = {&plugin, nullptr};
} // namespace

BRIM_MODULE("abi-test-cpp", "1.0", plugins)
