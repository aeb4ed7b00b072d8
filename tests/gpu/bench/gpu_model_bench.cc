// How fast models of Qwen3's shapes generate, with random weights, through a rollout worker's own
// code: lines "figure NAME VALUE UNIT" for gpu_check.sh, and "not_run NAME REASON".
//   gpu_model_bench decode|prefill [MODEL...]
// MODEL: 0.6b, 4b, 8b, or tiny for the emulator; the default is what targets are for.
// decode_bench.h says what is measured and by which formulas; torch_counterparts.py measures
// transformers' at the same shapes.
#include "tests/gpu/model_bench/bench_main.h"
#include "tests/gpu/model_bench/decode_bench.h"

int main(int argc, char** argv) {
  using namespace tandem::testing;
  return BenchMain(argc, argv,
                   {{.name = "decode", .bench = BenchDecode, .models = {"0.6b", "8b"}},
                    {.name = "prefill", .bench = BenchPrefill, .models = {"0.6b", "8b"}}});
}
