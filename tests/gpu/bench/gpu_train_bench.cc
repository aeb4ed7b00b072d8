// How fast a trainer worker's own code trains models of Qwen3's shapes, with random weights; as
// gpu_model_bench, which is a separate program because only a trainer needs LibTorch.
//   gpu_train_bench train [MODEL...]
#include "tests/gpu/model_bench/bench_main.h"
#include "tests/gpu/model_bench/train_bench.h"
#include "trainer_worker/losses/policy_loss.h"

int main(int argc, char** argv) {
  using namespace tandem::testing;
  tandem::UseOneTorchThread();
  return BenchMain(argc, argv,
                   {{.name = "train", .bench = BenchTraining, .models = {"0.6b", "4b"}}});
}
