#include "controller/partial_rollout/buffer/saved_buffer.h"

#include <cstring>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/base/json_integer.h"
#include "common/base/json_nesting.h"
#include "common/base/status.h"
#include "common/formats/files.h"
#include "common/types/xxh3.h"
#include "controller/partial_rollout/buffer/resume_check.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kLines[] = "pool.jsonl";
constexpr char kTokens[] = "tokens.bin";
constexpr char kRemedy[] =
    "take another copy of the checkpoint, or an earlier one with trainer.resume_mode=resume_path";

struct FinishName {
  FinishReason reason;
  const char* name;
};
constexpr FinishName kFinishNames[] = {{FinishReason::kNone, "none"},
                                       {FinishReason::kStop, "stop"},
                                       {FinishReason::kLength, "length"}};

std::string SealLine(std::string_view text) {
  return fmt::format("{{\"xxh3\":\"{}\"}}\n", HashXxh3(text.data(), text.size()).Hex());
}

// Invalid UTF-8 is replaced by replacement characters.
std::string ToLine(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json ToJson(const BufferedSample& sample, int64_t offset) {
  const char* finish = "";
  for (const FinishName& known : kFinishNames) {
    if (known.reason == sample.finish) finish = known.name;
  }
  Json versions = Json::array();
  for (const VersionRun& run : sample.versions) versions.push_back({run.version, run.tokens});
  return {{"id", sample.sample_id},
          {"finish", finish},
          {"versions", versions},
          {"offset", offset},
          {"log_probs", sample.log_probs},
          {"off_support", sample.off_support},
          {"temperature", sample.temperature}};
}

Json ToJson(const Prompt& prompt) {
  return {{"row", prompt.data_row},
          {"epoch", prompt.epoch},
          {"tokens", prompt.tokens},
          {"text", prompt.text},
          {"data_source", prompt.data_source},
          {"ground_truth", prompt.ground_truth},
          {"extra_info", prompt.extra_info_json}};
}

// Appends to the file of arrays and digests it; the digest goes into the header.
class ArraysWriter {
 public:
  explicit ArraysWriter(std::unique_ptr<AtomicFile> file) : file_(std::move(file)) {}

  template <typename T>
  absl::Status Append(const std::vector<T>& values) {
    const size_t size = values.size() * sizeof(T);
    hash_.Append(values.data(), size);
    bytes_ += static_cast<int64_t>(size);
    return file_->Append(values.data(), size);
  }
  absl::Status Commit() { return file_->Commit(); }
  int64_t bytes() const { return bytes_; }
  std::string digest() const { return hash_.Finish().Hex(); }

 private:
  std::unique_ptr<AtomicFile> file_;
  Xxh3Stream hash_;
  int64_t bytes_ = 0;
};

absl::Status Damaged(const std::string& path, const std::string& what) {
  return MakeStatus(absl::StatusCode::kDataLoss, "{}: {}", path, what);
}

Prompt PromptFromJson(const Json& json) {
  return {.data_row = IntegerOf<uint64_t>(json.at("row")),
          .epoch = IntegerOf<uint64_t>(json.at("epoch")),
          .tokens = IntegersOf<int32_t>(json.at("tokens")),
          .text = json.at("text").get<std::string>(),
          .data_source = json.at("data_source").get<std::string>(),
          .ground_truth = json.at("ground_truth").get<std::string>(),
          .extra_info_json = json.at("extra_info").get<std::string>()};
}

// Throws if the name is unknown.
FinishReason ParseFinishReason(const std::string& name) {
  for (const FinishName& known : kFinishNames) {
    if (name == known.name) return known.reason;
  }
  throw nlohmann::json::out_of_range::create(403, "finish is \"" + name + "\"", nullptr);
}

BufferedSample SampleFromJson(const Json& json) {
  BufferedSample sample{.sample_id = IntegerOf<uint64_t>(json.at("id")),
                        .offset = IntegerOf<int64_t>(json.at("offset")),
                        .log_probs = json.at("log_probs").get<bool>(),
                        .off_support = json.at("off_support").get<bool>(),
                        .temperature = json.at("temperature").get<float>(),
                        .finish = ParseFinishReason(json.at("finish").get<std::string>())};
  for (const Json& run : json.at("versions")) {
    sample.versions.push_back({IntegerOf<int64_t>(run.at(0)), IntegerOf<int64_t>(run.at(1))});
  }
  return sample;
}

// Returns all lines but the last, after it has checked the digest in that line.
absl::StatusOr<std::vector<Json>> ReadLines(const std::string& path) {
  absl::StatusOr<std::string> text = ReadWholeFile(path);
  if (absl::IsNotFound(text.status())) return Damaged(path, "it is missing");
  TANDEM_RETURN_IF_ERROR(text.status());
  const std::string_view all = *text;
  std::vector<Json> lines;
  size_t at = 0;
  while (at < all.size()) {
    const size_t end = all.find('\n', at);
    const std::string_view line = all.substr(at, end == all.npos ? all.npos : end - at);
    if (!CheckJsonNesting(line).ok()) {
      return Damaged(path, fmt::format("line {} is damaged", lines.size() + 1));
    }
    Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object())
      return Damaged(path, fmt::format("line {} is damaged", lines.size() + 1));
    if (lines.empty() && json.value("format", Json()) != kBufferFormat) {
      return MakeStatus(
          absl::StatusCode::kUnimplemented,
          "{} has format {}, and this build reads {}: continue with the build that wrote "
          "it, or start over with trainer.resume_mode=disable",
          path, json.value("format", Json()).dump(), kBufferFormat);
    }
    if (end == all.npos) break;
    if (end + 1 == all.size() && !lines.empty()) {
      if (all.substr(at) == SealLine(all.substr(0, at))) return lines;
      return Damaged(path, "it was cut short, or its bytes are not those that were written");
    }
    lines.push_back(std::move(json));
    at = end + 1;
  }
  return Damaged(path, "it was cut short");
}

absl::Status CheckSample(const SavedBuffer& buffer,
                         const BufferedSample& sample,
                         uint64_t wanted_id) {
  const auto wrong = [&](const std::string& what) {
    return Damaged(buffer.folder, fmt::format("sample {:#x}: {}", sample.sample_id, what));
  };
  if (sample.sample_id != wanted_id) {
    return wrong(fmt::format("its id is not that of its row, {:#x}", wanted_id));
  }
  int64_t left = buffer.response_length;
  for (size_t i = 0; i < sample.versions.size(); ++i) {
    const VersionRun& run = sample.versions[i];
    if (run.tokens < 1 || run.tokens > left) return wrong("its token counts are invalid");
    if (i > 0 && run.version <= sample.versions[i - 1].version) {
      return wrong("its weight versions are not ascending");
    }
    left -= run.tokens;
  }
  if (!sample.finished() && left == 0) return wrong("it has no tokens left, and is not finished");
  const auto file = static_cast<int64_t>(buffer.arrays->size());
  // Before bytes are counted, which could be more than 64 bits hold.
  if (sample.tokens() > file) return wrong("its arrays are not within the file");
  const int64_t bytes = TokenFile::Bytes(sample.tokens(), sample.log_probs);
  const bool inside = sample.offset >= 0 && sample.offset <= file && bytes <= file - sample.offset;
  return inside ? absl::OkStatus() : wrong("its arrays are not within the file");
}

absl::Status CheckGroups(const SavedBuffer& buffer) {
  std::set<std::pair<uint64_t, uint64_t>> rows;
  for (const auto& [number, group] : buffer.groups) {
    const Prompt& prompt = *group.prompt;
    if (!rows.insert({prompt.epoch, prompt.data_row}).second) {
      return Damaged(buffer.folder, fmt::format("row {} of epoch {} occurs twice, and with it its "
                                                "sample ids",
                                                prompt.data_row, prompt.epoch));
    }
    for (size_t i = 0; i < group.samples.size(); ++i) {
      TANDEM_RETURN_IF_ERROR(
          CheckSample(buffer, group.samples[i], MakeSampleId(prompt.data_row, prompt.epoch, i)));
    }
  }
  return absl::OkStatus();
}

absl::Status OpenArrays(const Json& header, SavedBuffer& buffer) {
  const std::string path = buffer.folder + "/" + kTokens;
  absl::StatusOr<std::shared_ptr<const MappedFile>> file = MappedFile::Open(path);
  if (absl::IsNotFound(file.status())) return Damaged(path, "it is missing");
  TANDEM_RETURN_IF_ERROR(file.status());
  buffer.arrays = *std::move(file);
  const auto bytes = IntegerOf<uint64_t>(header.at("tokens").at("bytes"));
  if (buffer.arrays->size() != bytes) {
    return Damaged(path,
                   fmt::format("it has {} bytes, {} were written", buffer.arrays->size(), bytes));
  }
  if (HashXxh3(buffer.arrays->data(), buffer.arrays->size()).Hex() !=
      header.at("tokens").at("xxh3")) {
    return Damaged(path, "its bytes are not those that were written");
  }
  return buffer.arrays->CheckWhole();
}

}  // namespace

TokenArrays SavedBuffer::Read(const BufferedSample& sample) const {
  TokenArrays read;
  read.tokens.resize(static_cast<size_t>(sample.tokens()));
  const uint8_t* at = arrays->data() + sample.offset;
  const size_t bytes = read.tokens.size() * sizeof(int32_t);
  if (bytes == 0) return read;
  std::memcpy(read.tokens.data(), at, bytes);
  if (sample.log_probs) {
    read.log_probs.resize(read.tokens.size());
    std::memcpy(read.log_probs.data(), at + bytes, bytes);
  }
  return read;
}

absl::Status WriteSavedBuffer(const std::string& checkpoint,
                              int64_t step,
                              const BufferOptions& options,
                              const BufferState& state) {
  TANDEM_ASSIGN_OR_RETURN(const auto folder,
                          AtomicDirectory::Create(checkpoint + "/" + kBufferFolder,
                                                  AtomicDirectory::IfExists::kReplace));
  TANDEM_ASSIGN_OR_RETURN(auto file, AtomicFile::Create(folder->partial_path() + "/" + kTokens));
  ArraysWriter writer(std::move(file));
  std::string groups;
  for (const auto& [number, group] : state.groups) {
    Json samples = Json::array();
    for (const BufferedSample& sample : group.samples) {
      TANDEM_ASSIGN_OR_RETURN(const TokenArrays arrays,
                              state.file->Read(sample.offset, sample.tokens(), sample.log_probs));
      samples.push_back(ToJson(sample, writer.bytes()));
      TANDEM_RETURN_IF_ERROR(writer.Append(arrays.tokens));
      TANDEM_RETURN_IF_ERROR(writer.Append(arrays.log_probs));
    }
    groups += ToLine(
        {{"group", number}, {"prompt", ToJson(*group.prompt)}, {"samples", std::move(samples)}});
  }
  TANDEM_RETURN_IF_ERROR(writer.Commit());
  Json header{{"format", kBufferFormat},
              {"step", step},
              {"tokenizer", options.tokenizer_digest},
              {"vocab_limit", options.vocab_limit},
              {"response_length", options.sampling.max_tokens},
              {"settings", FixedSettings(options)},
              {"next_group", state.next_group},
              {"groups", state.groups.size()},
              {"tokens", {{"bytes", writer.bytes()}, {"xxh3", writer.digest()}}}};
  if (state.ahead) {
    header["ahead"] = {{"step", state.ahead->step}, {"version", state.ahead->version}};
  }
  std::string text = ToLine(header) + groups;
  text += SealLine(text);
  TANDEM_RETURN_IF_ERROR(WriteFileAtomically(folder->partial_path() + "/" + kLines, text));
  return folder->Commit();
}

namespace {

absl::StatusOr<std::optional<SavedBuffer>> ReadBuffer(const std::string& checkpoint) {
  SavedBuffer buffer{.folder = checkpoint + "/" + kBufferFolder};
  std::error_code error;
  if (!std::filesystem::exists(buffer.folder, error)) return std::nullopt;
  const std::string path = buffer.folder + "/" + kLines;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Json> lines, ReadLines(path));
  try {
    const Json& header = lines.front();
    buffer.tokenizer_digest = header.at("tokenizer").get<std::string>();
    buffer.vocab_limit = IntegerOf<int64_t>(header.at("vocab_limit"));
    buffer.response_length = IntegerOf<int64_t>(header.at("response_length"));
    buffer.settings = header.at("settings").get<std::map<std::string, std::string>>();
    buffer.step = IntegerOf<int64_t>(header.at("step"));
    buffer.next_group = IntegerOf<int64_t>(header.at("next_group"));
    if (const auto ahead = header.find("ahead"); ahead != header.end()) {
      buffer.ahead = SampledAhead{.step = IntegerOf<int64_t>(ahead->at("step")),
                                  .version = IntegerOf<int64_t>(ahead->at("version"))};
    }
    for (size_t i = 1; i < lines.size(); ++i) {
      BufferedGroup group{
          .prompt = std::make_shared<const Prompt>(PromptFromJson(lines[i].at("prompt")))};
      for (const Json& sample : lines[i].at("samples"))
        group.samples.push_back(SampleFromJson(sample));
      buffer.groups.emplace(IntegerOf<int64_t>(lines[i].at("group")), std::move(group));
    }
    const bool counted =
        buffer.groups.size() == lines.size() - 1 &&
        header.at("groups").get<size_t>() == buffer.groups.size() &&
        (buffer.groups.empty() || buffer.groups.rbegin()->first < buffer.next_group);
    if (!counted) return Damaged(path, "its groups do not match the counts in its header");
    TANDEM_RETURN_IF_ERROR(OpenArrays(header, buffer));
  } catch (const nlohmann::json::exception& e) {
    return Damaged(path, e.what());
  }
  TANDEM_RETURN_IF_ERROR(CheckGroups(buffer));
  return buffer;
}

}  // namespace

absl::StatusOr<std::optional<SavedBuffer>> ReadSavedBuffer(const std::string& checkpoint) {
  auto buffer = ReadBuffer(checkpoint);
  if (!absl::IsDataLoss(buffer.status())) return buffer;
  return MakeStatus(absl::StatusCode::kDataLoss, "{}; {}", std::string(buffer.status().message()),
                    kRemedy);
}

absl::Status CheckSavedBuffer(const std::string& checkpoint) {
  absl::Status read = ReadBuffer(checkpoint).status();
  return absl::IsDataLoss(read) ? read : absl::OkStatus();
}

}  // namespace tandem
