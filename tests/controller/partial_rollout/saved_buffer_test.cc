// A rollout buffer is restored from a checkpoint unchanged, and a damaged one is reported.
#include "controller/partial_rollout/buffer/saved_buffer.h"

#include <filesystem>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "tests/common/formats/file_size_limit.h"
#include "tests/controller/partial_rollout/saved_buffer_fixture.h"

namespace tandem {
namespace {

void RequireEqualCounts(const BufferCounts& a, const BufferCounts& b) {
  REQUIRE(a.Text() == b.Text());
  REQUIRE(a.carried_samples == b.carried_samples);
  REQUIRE(a.longest_span == b.longest_span);
}

}  // namespace

TEST_CASE("a buffer of another step of the run is refused, and nothing changes",
          "[rollout_buffer]") {
  BufferRun run;
  REQUIRE(run.buffer->Add(SomePrompts(0, 2)).ok());
  const testing::TempDir checkpoint;
  REQUIRE(run.buffer->Save(checkpoint.path(), kStep - 1).ok());
  const absl::Status status = run.buffer->Load(checkpoint.path(), nullptr, kStep);
  REQUIRE(absl::IsInvalidArgument(status));
  REQUIRE(Says(status, "saved after step 3, and the checkpoint after step 4"));
  REQUIRE(std::ssize(run.buffer->state().groups) == 2);
}

TEST_CASE("A buffer in the middle of everything comes back as it was", "[saved_buffer]") {
  const SavedBufferFixture f;
  BufferRun other(f.run.options);
  other.lengths = f.run.lengths;
  REQUIRE(other.buffer->Load(f.checkpoint(), RowOf, kStep).ok());
  RequireEqualCounts(other.buffer->Counts(), f.run.buffer->Counts());
  REQUIRE(other.buffer->Counts().longest_span == 1);
  // Fresh groups go on counting behind those that are here.
  for (const BufferRun* run : std::initializer_list<const BufferRun*>{&f.run, &other}) {
    REQUIRE(run->buffer->Add({SomePrompt(9)}).ok());
    REQUIRE(run->Begin({.step = 3, .version = 3})->back().request_id == "3-0-3");
    run->RunRound({.step = 3, .version = 3});
  }
  TakenGroups groups, same;
  const std::vector<Sample> want = f.run.Taken(4, &groups), got = other.Taken(4, &same);
  for (size_t i = 0; i < want.size(); ++i) {
    RequireWhole(f.run, want[i]);
    REQUIRE(got[i].sample_id == want[i].sample_id);
    REQUIRE(got[i].tokens == want[i].tokens);
    REQUIRE(got[i].log_probs == want[i].log_probs);
    REQUIRE(got[i].versions == want[i].versions);
    REQUIRE(got[i].finish_reason == want[i].finish_reason);
    REQUIRE(got[i].temperature == want[i].temperature);
    REQUIRE(got[i].off_support == want[i].off_support);
  }
  for (size_t g = 0; g < 4; ++g) {
    REQUIRE(same.prompts[g].data_row == groups.prompts[g].data_row);
    REQUIRE(same.prompts[g].epoch == groups.prompts[g].epoch);
    REQUIRE(same.prompts[g].tokens == groups.prompts[g].tokens);
    REQUIRE(same.prompts[g].text == groups.prompts[g].text);
    REQUIRE(same.prompts[g].data_source == groups.prompts[g].data_source);
    REQUIRE(same.prompts[g].ground_truth == groups.prompts[g].ground_truth);
    REQUIRE(same.prompts[g].extra_info_json == groups.prompts[g].extra_info_json);
  }
  REQUIRE(same.partial_samples == groups.partial_samples);
}

TEST_CASE("A batch that was sampled ahead says so until it is taken", "[saved_buffer]") {
  const BufferRun run;
  REQUIRE(run.buffer->Add(SomePrompts(0, 2)).ok());
  run.RunRound({.step = 1, .version = 1});
  const auto loaded = [&] {
    const testing::TempDir checkpoint;
    REQUIRE(run.buffer->Save(checkpoint.path(), kStep).ok());
    const BufferRun other(run.options);
    REQUIRE(other.buffer->Load(checkpoint.path(), RowOf, kStep).ok());
    return other.buffer->state().ahead;
  };
  REQUIRE(loaded() == std::nullopt);
  run.buffer->Commit();
  run.buffer->SetAhead({.step = kStep + 1, .version = 1});
  REQUIRE(loaded() == SampledAhead{.step = kStep + 1, .version = 1});
  run.buffer->Rollback();
  REQUIRE(loaded() == std::nullopt);
  run.buffer->SetAhead({.step = kStep + 1, .version = 1});
  run.Taken(2);
  REQUIRE(loaded() == std::nullopt);
}

TEST_CASE("A round trip at every state, in the middle of a round too", "[saved_buffer]") {
  const BufferRun run;
  const auto round_trip = [&] {
    const testing::TempDir checkpoint;
    REQUIRE(run.buffer->Save(checkpoint.path(), kStep).ok());
    const BufferRun other(run.options);
    REQUIRE(other.buffer->Add({SomePrompt(77)}).ok());
    REQUIRE(other.buffer->Load(checkpoint.path(), RowOf, kStep).ok());
    RequireEqualCounts(other.buffer->Counts(), run.buffer->Counts());
    const testing::TempDir again;
    REQUIRE(other.buffer->Save(again.path(), kStep).ok());
    for (const char* name : {"/partial_pool/pool.jsonl", "/partial_pool/tokens.bin"}) {
      REQUIRE(SavedBufferFixture::Bytes(again.path().string() + name) ==
              SavedBufferFixture::Bytes(checkpoint.path().string() + name));
    }
  };
  round_trip();
  REQUIRE(run.buffer->Add(SomePrompts(0, 3)).ok());
  round_trip();
  for (int64_t round = 0; round < 4; ++round) {
    const auto requests = run.Begin({.step = 1, .round = round, .version = 1, .cap = 3});
    round_trip();
    for (const GroupRequest& request : *requests) {
      for (const uint64_t id : request.sample_ids) {
        REQUIRE(run.Put(run.Generated(request, id)).ok());
        round_trip();
      }
    }
  }
  REQUIRE(run.buffer->complete() == 3);
  run.Taken(2);
  round_trip();
  run.Taken(1);
  round_trip();
}

TEST_CASE("A checkpoint without a buffer leaves an empty one", "[saved_buffer]") {
  const SavedBufferFixture f;
  const BufferRun other;
  REQUIRE(other.buffer->Add({SomePrompt(5)}).ok());
  REQUIRE(other.buffer->Load(other.dir.path() / "none", RowOf, kStep).ok());
  REQUIRE(std::ssize(other.buffer->state().groups) == 0);
  other.buffer->Rollback();
  REQUIRE(std::ssize(other.buffer->state().groups) == 0);
}

TEST_CASE("A save replaces the buffer of an earlier attempt", "[saved_buffer]") {
  const SavedBufferFixture f;
  REQUIRE(f.run.buffer->Add({SomePrompt(50)}).ok());
  REQUIRE(f.run.buffer->Save(f.checkpoint(), kStep).ok());
  const BufferRun other(f.run.options);
  REQUIRE(other.buffer->Load(f.checkpoint(), RowOf, kStep).ok());
  REQUIRE(std::ssize(other.buffer->state().groups) == 4);
}

TEST_CASE("Every cut of a saved buffer is told", "[saved_buffer]") {
  const SavedBufferFixture f;
  for (const std::string& path : {f.lines(), f.tokens()}) {
    const std::string bytes = SavedBufferFixture::Bytes(path);
    for (size_t size = 0; size < bytes.size(); size += 37) {
      INFO(path << " " << size);
      SavedBufferFixture::Write(path, bytes.substr(0, size));
      const absl::Status loaded = f.Loaded();
      REQUIRE(absl::IsDataLoss(loaded));
      REQUIRE(Says(loaded, path));
      REQUIRE(Says(loaded, "an earlier one with trainer.resume_mode=resume_path"));
    }
    SavedBufferFixture::Write(path, bytes + "x");
    REQUIRE(absl::IsDataLoss(f.Loaded()));
    std::filesystem::remove(path);
    REQUIRE(absl::IsDataLoss(f.Loaded()));
    REQUIRE(Says(f.Loaded(), path + ": it is missing"));
    SavedBufferFixture::Write(path, bytes);
    REQUIRE(f.Loaded().ok());
  }
}

TEST_CASE("Every changed byte of a saved buffer is told", "[saved_buffer]") {
  const SavedBufferFixture f;
  for (const std::string& path : {f.lines(), f.tokens()}) {
    const std::string bytes = SavedBufferFixture::Bytes(path);
    for (size_t at = 0; at < bytes.size(); at += 23) {
      INFO(path << " " << at);
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ 0x10);
      SavedBufferFixture::Write(path, changed);
      REQUIRE_FALSE(f.Loaded().ok());
    }
    SavedBufferFixture::Write(path, bytes);
  }
}

TEST_CASE("Whether a checkpoint's buffer is whole is told without what to do", "[saved_buffer]") {
  const SavedBufferFixture f;
  REQUIRE(CheckSavedBuffer(f.checkpoint()).ok());
  REQUIRE(CheckSavedBuffer(f.run.dir.path() / "none").ok());
  for (const std::string& path : {f.lines(), f.tokens()}) {
    const std::string bytes = SavedBufferFixture::Bytes(path);
    std::string changed = bytes;
    changed.back() = static_cast<char>(changed.back() ^ 1);
    for (const std::string& damaged : {changed, bytes.substr(1)}) {
      SavedBufferFixture::Write(path, damaged);
      const absl::Status told = CheckSavedBuffer(f.checkpoint());
      REQUIRE(absl::IsDataLoss(told));
      REQUIRE(std::string(told.message()).rfind(path + ": ", 0) == 0);
      REQUIRE_FALSE(Says(told, "resume_path"));
    }
    SavedBufferFixture::Write(path, bytes);
  }
  // Whole, but not for this build: to be refused by name, not passed over.
  SavedBufferFixture::Write(f.lines(), "{\"format\":2}\n");
  REQUIRE(CheckSavedBuffer(f.checkpoint()).ok());
}

TEST_CASE("A format of a later build is refused before anything else of it is read",
          "[saved_buffer]") {
  const SavedBufferFixture f;
  const absl::Status refused = f.WithLine("\"format\":1,", "\"format\":2,\"later\":[],");
  REQUIRE(absl::IsUnimplemented(refused));
  REQUIRE(
      Says(refused, "has format 2, and this build reads 1: continue with the build that wrote it"));
  SavedBufferFixture::Write(f.lines(), "{\"format\":\"x\"}\n");
  REQUIRE(absl::IsUnimplemented(f.Loaded()));
}

TEST_CASE("Stored ids outside the vocabulary are refused by sample", "[saved_buffer]") {
  const SavedBufferFixture f;
  for (const int32_t id : {static_cast<int32_t>(kVocab), -1}) {
    const absl::Status refused = f.WithFirstToken(id);
    REQUIRE(absl::IsDataLoss(refused));
    REQUIRE(Says(refused, fmt::format("sample 0x0 holds the token id {}, and the tokenizer has 50 "
                                      "ids",
                                      id)));
  }
  REQUIRE(f.WithFirstToken(3).ok());
  const absl::Status prompt = f.Loaded(f.run.options, nullptr);
  REQUIRE(prompt.ok());
  REQUIRE(absl::IsInvalidArgument(f.WithLine("\"tokens\":[0,7,49]", "\"tokens\":[0,7,50]")));
}

TEST_CASE("Lines that lie are told, their digest being right", "[saved_buffer]") {
  const SavedBufferFixture f;
  const auto told = [&](const std::string& before, const std::string& now, const std::string& why) {
    INFO(now);
    const absl::Status status = f.WithLine(before, now);
    REQUIRE(absl::IsDataLoss(status));
    REQUIRE(Says(status, why));
  };
  told("\"row\":1,", "\"row\":0,", "row 0 of epoch 0 occurs twice, and with it its sample ids");
  told("\"row\":1,", "\"row\":2,", "its id is not that of its row");
  told("\"id\":1,", "\"id\":0,", "its id is not that of its row");
  told("[[1,4],[2,3]]", "[[1,4],[1,3]]", "its weight versions are not ascending");
  told("[[1,4],[2,3]]", "[[1,4],[2,30]]", "its token counts are invalid");
  told("[[1,4],[2,3]]", "[[1,4],[2,0]]", "its token counts are invalid");
  told("[[1,4],[2,3]]", "[[1,4],[2,6]]", "it has no tokens left, and is not finished");
  told("\"offset\":0,", "\"offset\":-1,", "its arrays are not within the file");
  told("\"offset\":0,", "\"offset\":100000,", "its arrays are not within the file");
  told("\"finish\":\"none\"", "\"finish\":\"later\"", "finish is \"later\"");
  told("\"groups\":3", "\"groups\":4", "its groups do not match the counts in its header");
  told("\"next_group\":3", "\"next_group\":2", "its groups do not match the counts in its header");
  told("\"group\":1,", "\"group\":0,", "its groups do not match the counts in its header");
  told("\"epoch\":0,", "\"epoch\":[],", "json.exception");
  told("\"settings\":{", "\"settings\":[{", "is damaged");
}

TEST_CASE("A full disk leaves no half of a buffer, and the one before", "[saved_buffer]") {
  BufferRun run;
  run.options.sampling.max_tokens = 4000;
  run.lengths = [](uint64_t) { return 3000; };
  run.buffer = run.OpenBuffer();
  const std::string checkpoint = run.dir.path() / "step_1";
  REQUIRE(run.buffer->Save(checkpoint, kStep).ok());
  const std::string before = SavedBufferFixture::Bytes(checkpoint + "/partial_pool/pool.jsonl");
  REQUIRE(run.buffer->Add(SomePrompts(0, 1)).ok());
  run.RunRound({.step = 1, .version = 1, .cap = 2000});
  {
    const testing::FileSizeLimit limit(10000);
    const absl::Status saved = run.buffer->Save(checkpoint, kStep);
    REQUIRE(absl::IsResourceExhausted(saved));
    REQUIRE(Says(saved, checkpoint));
  }
  REQUIRE(SavedBufferFixture::Bytes(checkpoint + "/partial_pool/pool.jsonl") == before);
  REQUIRE_FALSE(std::filesystem::exists(checkpoint + "/partial_pool.partial"));
  REQUIRE(run.buffer->Save(checkpoint, kStep).ok());
  {
    const testing::FileSizeLimit limit(10000);
    const BufferRun other(run.options);
    REQUIRE(absl::IsResourceExhausted(other.buffer->Load(checkpoint, nullptr, kStep)));
    REQUIRE(std::ssize(other.buffer->state().groups) == 0);
  }
}

}  // namespace tandem
