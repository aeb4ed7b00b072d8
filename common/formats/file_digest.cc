#include "common/formats/file_digest.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/formats/file_io.h"
#include "common/process/threads.h"
#include "common/types/xxh3.h"

namespace tandem {
namespace {

constexpr int64_t kPieceBytes = int64_t{32} << 20;
constexpr int64_t kReadBytes = int64_t{1} << 20;

// Of a file or text that was hashed in pieces.
FileDigest DigestOfPieces(int64_t bytes, const std::vector<Xxh3Hash>& pieces) {
  Xxh3Stream hash;
  for (const Xxh3Hash& piece : pieces) {
    const auto bytes_of_piece = piece.Bytes();
    hash.Append(bytes_of_piece.data(), bytes_of_piece.size());
  }
  return {.bytes = bytes, .hex = hash.Finish().Hex()};
}

absl::Status ReadError(const std::string& path, const char* action, int error) {
  return MakeStatus(IoErrorCode(error), "{}: {} failed: {}", path, action, std::strerror(error));
}

class DigestedFile {
 public:
  static absl::StatusOr<std::unique_ptr<DigestedFile>> Open(const std::string& path) {
    std::unique_ptr<DigestedFile> file(new DigestedFile(path));
    if (file->fd_ < 0) return ReadError(path, "opening", errno);
    struct stat status {};
    if (fstat(file->fd_, &status) != 0) return ReadError(path, "reading", errno);
    if (!S_ISREG(status.st_mode)) return ReadError(path, "reading", EISDIR);
    file->bytes_ = status.st_size;
    // An empty file has one empty piece.
    file->pieces_.resize(
        static_cast<size_t>(std::max<int64_t>(1, (file->bytes_ + kPieceBytes - 1) / kPieceBytes)));
    return file;
  }
  ~DigestedFile() {
    if (fd_ >= 0) close(fd_);
  }
  DigestedFile(const DigestedFile&) = delete;
  DigestedFile& operator=(const DigestedFile&) = delete;

  size_t pieces() const { return pieces_.size(); }

  // Thread-safe for different pieces.
  absl::Status DigestPiece(size_t piece) {
    Xxh3Stream hash;
    std::string buffer(kReadBytes, '\0');
    int64_t offset = static_cast<int64_t>(piece) * kPieceBytes;
    const int64_t end = std::min(bytes_, offset + kPieceBytes);
    while (offset < end) {
      const auto wanted = static_cast<size_t>(std::min(kReadBytes, end - offset));
      const IoResult read = ReadAll(fd_, std::span(buffer.data(), wanted), offset);
      if (read.error != 0) return ReadError(path_, "reading", read.error);
      if (read.bytes < wanted)
        return absl::DataLossError(path_ + " was cut short while it was read");
      hash.Append(buffer.data(), wanted);
      offset += static_cast<int64_t>(wanted);
    }
    pieces_[piece] = hash.Finish();
    return absl::OkStatus();
  }

  FileDigest Finish() const { return DigestOfPieces(bytes_, pieces_); }

 private:
  explicit DigestedFile(std::string path)
      : path_(std::move(path)), fd_(open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {}

  const std::string path_;
  const int fd_;
  int64_t bytes_ = 0;
  std::vector<Xxh3Hash> pieces_;
};

}  // namespace

absl::StatusOr<std::vector<FileDigest>> DigestFiles(const std::vector<std::string>& paths,
                                                    int threads) {
  std::vector<std::unique_ptr<DigestedFile>> files;
  std::vector<std::pair<DigestedFile*, size_t>> tasks;
  for (const std::string& path : paths) {
    TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<DigestedFile> file, DigestedFile::Open(path));
    for (size_t piece = 0; piece < file->pieces(); ++piece) tasks.emplace_back(file.get(), piece);
    files.push_back(std::move(file));
  }
  std::vector<absl::Status> statuses(tasks.size());
  ThreadPool pool(std::max(1, threads));
  pool.ParallelFor(static_cast<int64_t>(tasks.size()), [&](int64_t task, int) {
    const auto i = static_cast<size_t>(task);
    statuses[i] = tasks[i].first->DigestPiece(tasks[i].second);
  });
  for (const absl::Status& status : statuses) TANDEM_RETURN_IF_ERROR(status);
  std::vector<FileDigest> digests;
  digests.reserve(files.size());
  for (const auto& file : files) digests.push_back(file->Finish());
  return digests;
}

FileDigest DigestText(const std::string& text) {
  std::vector<Xxh3Hash> pieces;
  size_t at = 0;
  do {
    const size_t bytes = std::min(static_cast<size_t>(kPieceBytes), text.size() - at);
    pieces.push_back(HashXxh3(text.data() + at, bytes));
    at += bytes;
  } while (at < text.size());
  return DigestOfPieces(static_cast<int64_t>(text.size()), pieces);
}

}  // namespace tandem
