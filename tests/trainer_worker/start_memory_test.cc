// What a rank holds from the empty shard to the first optimizer step, by the ledger and by the
// system.
#include <limits>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/device/device_memory.h"
#include "common/formats/files.h"
#include "tests/support/bytes_in.h"
#include "tests/support/units.h"
#include "tests/trainer_worker/trainer_ranks.h"

namespace tandem {
namespace {

using namespace tandem::testing;

// One layer of 34 MB in bf16 in few tensors: a rank's slice, the file and a full fp32 copy are told
// apart by their pages.
std::string WriteOneLargeLayer(const TempDir& dir) {
  TinyModelOptions options;
  options.hidden_size = 1024;
  options.num_layers = 1;
  options.num_heads = 16;
  options.num_kv_heads = 16;
  options.head_dim = 64;
  options.intermediate_size = 4096;
  const std::string path = (dir.path() / "model").string();
  REQUIRE(WriteTinyModel(path, options).ok());
  return path;
}

std::string WriteSmall(const TempDir& dir) {
  const std::string path = (dir.path() / "model").string();
  REQUIRE(WriteTinyModel(path).ok());
  return path;
}

// Bytes of [data, data + bytes) that have pages; of a mapped file, in the system's cache.
int64_t ResidentBytes(const void* data, int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> present((bytes + page - 1) / page);
  REQUIRE(mincore(const_cast<void*>(data), static_cast<size_t>(bytes), present.data()) == 0);
  int64_t pages = 0;
  for (const unsigned char flags : present) pages += flags & 1;
  return pages * page;
}

// Makes the system forget the file's pages; false where it does not, as with files in memory.
bool Forget(const MappedFile& file) {
  const int fd = open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(fd >= 0);
  const bool told = fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0;
  close(fd);
  const auto size = static_cast<int64_t>(file.size());
  return told && ResidentBytes(file.data(), size) < size / 10;
}

TEST_CASE("A shard is empty until a rank fills it with its own rows of the file",
          "[trainer][start]") {
  const TempDir dir;
  const std::string model = WriteOneLargeLayer(dir);
  const auto spec = LoadModelSpec(model);
  REQUIRE(spec.ok());
  const auto file = MappedFile::Open(model + "/model.safetensors");
  REQUIRE(file.ok());
  const auto file_bytes = static_cast<int64_t>((*file)->size());
  const int64_t full = 4 * spec->parameters();
  for (const int rank : {0, 3}) {
    const WeightLayout layout = WeightLayout::Build(*spec, DType::kBFloat16);
    const ShardPlan plan(&layout, rank, 4);
    Ledger ledger;
    const auto ops = CreateCpuShardOps(std::make_shared<ThreadPool>(1));
    const auto shard = ParameterShard::Create(&plan, {}, {HostDevice(), ops.get()}, &ledger);
    REQUIRE(shard.ok());
    const int64_t elements = (*shard)->elements();
    REQUIRE(ResidentBytes((*shard)->master(), 4 * elements) == 0);

    const bool cold = Forget(**file);
    ResetProcessPeak();
    const int64_t before = ReadProcessMemory().peak_resident;
    REQUIRE(LoadModel(model, *spec, **shard).ok());
    const int64_t grown = ReadProcessMemory().peak_resident - before;
    if (cold) {
      // A quarter of the file, in whole pages, and its head.
      const int64_t read = ResidentBytes((*file)->data(), file_bytes);
      INFO(read << " bytes read of " << file_bytes);
      REQUIRE(read >= elements);  // more, but the system may have dropped pages again
      REQUIRE(read <= 2 * elements + kMiB);
    }
    // Masters (their rounding, which a rollout may read, has its pages from the start); of the file
    // the system may count pages that nobody touched.
    const int64_t bound = 4 * elements + file_bytes + 8 * kMiB;
    INFO(grown << " bytes more, at most " << bound);
    REQUIRE(grown >= 4 * elements);
    REQUIRE(grown <= bound);
    REQUIRE(bound < 4 * elements + full);
    REQUIRE(ResidentBytes((*shard)->master(), 4 * elements) >= 4 * elements);

    const LedgerSnapshot held = ledger.Snapshot();
    REQUIRE(BytesOf(held, "master") <= 4 * elements + 2 * kMiB);
    REQUIRE(BytesOf(held, "weights") <= 2 * elements + 2 * kMiB);
    REQUIRE(testing::BytesIn(held, Location::kDevice) ==
            BytesOf(held, "master") + BytesOf(held, "weights"));
  }
}

TEST_CASE("Adam's moments come with the first step that updates, and never where none does",
          "[trainer][start]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteSmall(dir)};
  const std::vector<Sample> samples = RandomSamples(4, 3);
  for (const int world : {1, 2}) {
    TrainerRanks group(world, options);
    const auto moments = [&group](int rank) {
      return BytesOf(group[rank].ledger->Snapshot(), "optimizer");
    };
    const auto names_them = [&group] {
      for (const LedgerEntry& entry : group[0].ledger->Snapshot().entries) {
        if (entry.tag == "optimizer") return true;
      }
      return false;
    };
    // Evaluation: both policies are scored.
    group.RunOk([&](Rank& rank, int index) -> absl::Status {
      const std::vector<Sample> mine = Share(samples, index, world);
      TANDEM_RETURN_IF_ERROR(rank.session->FreezeReference());
      TANDEM_RETURN_IF_ERROR(rank.session->Score(mine).status());
      return rank.session->Score(mine, LogProbPolicy::kReference).status();
    });
    REQUIRE_FALSE(names_them());
    // A step that is skipped makes none either.
    std::vector<Sample> broken = samples;
    broken[0].advantages[0] = std::numeric_limits<float>::infinity();
    TrainOn(group, broken);
    REQUIRE(StepOn(group).skipped);
    REQUIRE_FALSE(names_them());
    TrainOn(group, samples);
    REQUIRE_FALSE(names_them());
    REQUIRE_FALSE(StepOn(group).skipped);
    for (int rank = 0; rank < world; ++rank) {
      REQUIRE(moments(rank) >= 8 * group[rank].session->shard().elements());
      REQUIRE(group[rank].session->shard().has_moments());
    }
  }
}

}  // namespace
}  // namespace tandem
