// Groups of ranks on real devices: staged from one GPU, and NCCL where there are two.
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "common/comm/cuda/nccl_communicator.h"
#include "tests/common/comm/cuda/lonely_host.h"
#include "tests/gpu/device_ranks.h"
#include "tests/gpu/gpu.h"
#include "tests/support/patience.h"

namespace tandem {
namespace {

using testing::DeviceRank;

// Several chunks of staging, and not a multiple of anything.
constexpr int64_t kCount = (int64_t{5} << 20) + 3;

// A value whose sums depend on their order.
float Value(int rank, int64_t i) {
  return static_cast<float>((rank * 7919 + i * 104729) % 10007) * 1.37e-3f - 3.1f +
         static_cast<float>(rank) * 1e4f;
}

template <typename T>
T* OnDevice(CudaContext& context, int slot, const std::vector<T>& values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
  std::byte* const place = context.Scratch(slot, bytes);
  context.Copy(place, values.data(), bytes);
  return reinterpret_cast<T*>(place);
}

// Two ranks: the order of a sum of two does not show, so one expectation serves both ways.
absl::Status CheckScatter(DeviceRank rank) {
  const int me = rank.group.rank();
  const std::vector<int64_t> counts = {kCount, kCount - 5};
  std::vector<float> full(static_cast<size_t>(counts[0] + counts[1]));
  for (size_t i = 0; i < full.size(); ++i) full[i] = Value(me, static_cast<int64_t>(i));
  std::vector<float> mine(static_cast<size_t>(counts[static_cast<size_t>(me)]), 0.25f);
  const float* const from = OnDevice(rank.context, 0, full);
  float* const to = OnDevice(rank.context, 1, mine);
  // Of equal pieces beside unequal ones, as a layer's tensors are.
  std::vector<float> few(1000, 0.25f);
  float* const equal = OnDevice(rank.context, 4, few);
  // Not synchronised: the collective must wait for the copies by itself.
  TANDEM_RETURN_IF_ERROR(rank.group.ReduceScatterSums(
      {{from, {1000, 1000}, equal}, {from, counts, to}}, Accumulate::kAdd));
  rank.context.Read(mine.data(), to, static_cast<int64_t>(mine.size() * 4));
  rank.context.Read(few.data(), equal, static_cast<int64_t>(few.size() * 4));
  TANDEM_RETURN_IF_ERROR(rank.context.Synchronize());
  for (size_t i = 0; i < few.size(); ++i) {
    const auto at = static_cast<int64_t>(i) + 1000 * me;
    if (few[i] == 0.25f + (Value(0, at) + Value(1, at))) continue;
    return Internal("rank {}: sum {} of equal pieces is {}", me, i, few[i]);
  }
  for (size_t i = 0; i < mine.size(); ++i) {
    const auto at = static_cast<int64_t>(i) + (me == 0 ? 0 : counts[0]);
    const float sum = Value(0, at) + Value(1, at);
    if (mine[i] != 0.25f + sum) return Internal("rank {}: sum {} is {}", me, i, mine[i]);
  }
  return absl::OkStatus();
}

absl::Status CheckGather(DeviceRank rank) {
  const auto me = static_cast<size_t>(rank.group.rank());
  const std::vector<int64_t> bytes = {8 * kCount, 8 * kCount + 24};
  std::vector<uint64_t> mine(static_cast<size_t>(bytes[me] / 8));
  for (size_t i = 0; i < mine.size(); ++i) mine[i] = i * 31 + me;
  const uint64_t* const from = OnDevice(rank.context, 2, mine);
  std::byte* const to = rank.context.Scratch(3, bytes[0] + bytes[1]);
  TANDEM_RETURN_IF_ERROR(rank.group.AllGatherV(from, bytes, to));
  std::vector<uint64_t> all(static_cast<size_t>((bytes[0] + bytes[1]) / 8));
  rank.context.Read(all.data(), to, bytes[0] + bytes[1]);
  TANDEM_RETURN_IF_ERROR(rank.context.Synchronize());
  const auto first = static_cast<size_t>(bytes[0] / 8);
  for (size_t i = 0; i < all.size(); ++i) {
    const uint64_t expected = i < first ? i * 31 : (i - first) * 31 + 1;
    if (all[i] != expected) return Internal("rank {}: word {} of a gather", me, i);
  }
  return absl::OkStatus();
}

absl::Status CheckAll(DeviceRank rank) {
  for (int round = 0; round < 3; ++round) {
    TANDEM_RETURN_IF_ERROR(CheckScatter(rank));
    TANDEM_RETURN_IF_ERROR(CheckGather(rank));
  }
  double one = 1 + rank.group.rank();
  TANDEM_RETURN_IF_ERROR(rank.group.AllReduceSum(&one, 1));
  if (one != 3) return Internal("a sum of host values is {}", one);
  return rank.group.Barrier();
}

void RequireOk(const std::vector<absl::Status>& results) {
  for (const absl::Status& status : results) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
}

}  // namespace

TEST_CASE("two ranks on one GPU sum and gather through pinned memory", "[staged]") {
  const auto cuda = *testing::OpenGpu();
  RequireOk(testing::RunDeviceRanks(cuda.get(), nullptr, 1, 2, CheckAll));
}

TEST_CASE("NCCL starts on this machine and does the work of a single rank", "[nccl]") {
  const auto cuda = *testing::OpenGpu();
  PinNcclSums();
  const auto nccl = OpenNccl();
  if (cuda->Describe(0)->name == "emulated" || !nccl.ok()) {
    testing::NotRun(nccl.ok() ? "the GPU is emulated" : std::string(nccl.status().message()));
    return;
  }
  const auto context = *CudaContext::Create(cuda.get(), 0);
  NcclOptions options;
  options.cuda = cuda.get();
  options.compute = context->stream();
  options.nccl = nccl->get();
  options.deadline = testing::kPatience;
  auto group = NcclCommunicator::Create(std::make_unique<testing::LonelyHost>(0, 1), options);
  INFO(group.status().ToString());
  REQUIRE(group.ok());
  const std::vector<float> values(1000, 1.5f);
  const float* const from = OnDevice(*context, 0, values);
  float* const to = OnDevice(*context, 1, values);
  REQUIRE((*group)->ReduceScatterSum(from, {1000}, to, Accumulate::kAdd).ok());
  REQUIRE((*group)->AllGather(from, 4000, to).ok());
  REQUIRE((*group)->ReduceScatterSum(from, {1000}, to, Accumulate::kAdd).ok());
  std::vector<float> out(1000);
  context->Read(out.data(), to, 4000);
  REQUIRE(context->Synchronize().ok());
  REQUIRE(out == std::vector<float>(1000, 3.0f));
}

TEST_CASE("two ranks on two GPUs sum and gather through NCCL", "[nccl2]") {
  const auto cuda = *testing::OpenGpu();
  PinNcclSums();
  const auto nccl = OpenNccl();
  if (*cuda->DeviceCount() < 2 || !nccl.ok()) {
    testing::NotRun("it needs two GPUs and NCCL");
    return;
  }
  RequireOk(testing::RunDeviceRanks(cuda.get(), nccl->get(), 2, 2, CheckAll));
}

}  // namespace tandem
