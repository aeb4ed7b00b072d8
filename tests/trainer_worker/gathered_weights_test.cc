// Where ranks gather weights into: groups for the ops, slots for a sync.
#include <algorithm>
#include <cstring>

#include "common/base/status_macros.h"
#include "tests/trainer_worker/rank_group.h"
#include "trainer_worker/shard_tensor_source.h"

namespace tandem {
namespace {

using namespace tandem::testing;

// Sizes that neither 2 nor 3 divides, and norms with fewer rows than some chunks need.
std::string Write(const TempDir& dir) {
  TinyModelOptions options;
  options.model_type = "qwen3";
  options.vocab_size = 289;
  options.hidden_size = 50;
  options.num_heads = 5;
  options.num_kv_heads = 1;
  options.head_dim = 10;
  options.intermediate_size = 77;
  const std::string path = (dir.path() / "model").string();
  REQUIRE(WriteTinyModel(path, options).ok());
  return path;
}

TEST_CASE("Weights that stay gathered for backward change no bit over several steps",
          "[trainer][ranks]") {
  const TempDir dir;
  RankGroupOptions options{.model_dir = Write(dir)};
  const std::vector<Sample> samples = RandomSamples(5, 5);
  RankGroup anew(2, options);
  options.kept_bytes = int64_t{1} << 40;
  RankGroup kept(2, options);
  for (int step = 0; step < 3; ++step) {
    TrainOn(anew, samples);
    TrainOn(kept, samples);
    StepOn(anew);
    StepOn(kept);
    for (const std::string& name : anew.TensorNames()) {
      INFO(name);
      const bool same_gradient = anew.Gradient(name) == kept.Gradient(name);
      REQUIRE(same_gradient);
      const bool same_master = anew.Master(name) == kept.Master(name);
      REQUIRE(same_master);
    }
  }
}

TEST_CASE("Ranks gather every range of rows, and publish the digests of a single one",
          "[trainer][ranks]") {
  const TempDir dir;
  const RankGroupOptions options{.model_dir = Write(dir)};
  std::vector<Digest> want;
  for (const int world : {1, 2, 3}) {
    RankGroup group(world, options);
    std::vector<std::vector<Digest>> digests(world);
    group.RunOk([&](Rank& rank, int index) -> absl::Status {
      TrainingSession& session = *rank.session;
      TANDEM_ASSIGN_OR_RETURN(
          auto source,
          ShardTensorSource::Create(&session.shard(), &session.communicator(), rank.ledger.get()));
      const WeightLayout& layout = session.decoder().layout();
      for (const TensorPlace& place : layout.places()) {
        TANDEM_ASSIGN_OR_RETURN(const void* whole, source->Gather(place));
        const int64_t row_bytes = place.cols() * 2;
        const auto* first = static_cast<const std::byte*>(whole);
        const std::vector<std::byte> tensor(first, first + place.rows() * row_bytes);
        std::vector<std::byte> memory(7 * row_bytes);
        for (int64_t row = 0; row < place.rows(); row += 7) {
          const int64_t rows = std::min<int64_t>(7, place.rows() - row);
          TANDEM_ASSIGN_OR_RETURN(
              const void* got, source->GatherRows({&place, row, rows, row_bytes}, memory.data()));
          if (std::memcmp(got, tensor.data() + row * row_bytes, rows * row_bytes) != 0) {
            return Internal("rows {} of {} differ", row, place.name);
          }
        }
      }
      WeightPublisher publisher(&layout, {8192, 2, nullptr});
      TANDEM_RETURN_IF_ERROR(publisher.Publish(1, *source, nullptr).status());
      digests[index] = publisher.digests();
      return absl::OkStatus();
    });
    if (world == 1) want = digests[0];
    for (const std::vector<Digest>& got : digests) REQUIRE(got == want);
  }
}

}  // namespace
}  // namespace tandem
