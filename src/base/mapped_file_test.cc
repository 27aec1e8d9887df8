#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace thalweg {
namespace {

class MappedFileTest : public testing::Test {
 protected:
  MappedFileTest() {
    std::string name = (std::filesystem::temp_directory_path() / "thalweg-mapped-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~MappedFileTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& content) {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  std::filesystem::path folder_;
};

std::string text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST_F(MappedFileTest, HoldsTheBytesAndMovesThem) {
  const std::string path = write("a", "thalweg");
  Result<MappedFile> file = MappedFile::open(path);
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(text(*file), "thalweg");
  EXPECT_EQ(file->path(), path);
  const std::byte* address = file->bytes().data();
  const MappedFile moved = std::move(*file);
  EXPECT_EQ(moved.bytes().data(), address);
  EXPECT_EQ(text(moved), "thalweg");
}

TEST_F(MappedFileTest, AnEmptyFileIsEmpty) {
  const Result<MappedFile> file = MappedFile::open(write("empty", ""));
  ASSERT_TRUE(file.has_value());
  EXPECT_TRUE(file->bytes().empty());
  file->drop(0, 0);
}

TEST_F(MappedFileTest, RefusesWhatIsNoFile) {
  const Result<MappedFile> missing = MappedFile::open(folder_ / "missing");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("missing"), std::string::npos);

  const Result<MappedFile> folder = MappedFile::open(folder_);
  ASSERT_FALSE(folder.has_value());
  EXPECT_NE(folder.error().message.find("is a folder"), std::string::npos);

  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_FALSE(MappedFile::open(fifo).has_value());
}

/// Of the mappings of `path` alone: a sanitizer's shadow of what was read is resident too.
std::size_t resident_bytes(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  std::size_t kib = 0;
  bool is_ours = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') < line.find(' ')) is_ours = line.ends_with(path);  // "begin-end rights ... path"
    if (is_ours && line.starts_with("Rss:")) kib += std::stoul(line.substr(4));
  }
  return kib << 10;
}

TEST_F(MappedFileTest, DroppedPagesLeaveTheProcessAndComeBack) {
  constexpr std::size_t kSize = 32 << 20;
  const std::string path = write("large", std::string(kSize, 'x'));
  const Result<MappedFile> file = MappedFile::open(path);
  ASSERT_TRUE(file.has_value());
  const auto sum = [&] {
    std::size_t total = 0;
    for (std::size_t i = 0; i < kSize; i += 4096) total += static_cast<std::size_t>(file->bytes()[i]);
    return total;
  };
  EXPECT_EQ(sum(), kSize / 4096 * 'x');
  EXPECT_GE(resident_bytes(path), kSize / 2);
  file->drop(100, kSize - 200);
  EXPECT_LE(resident_bytes(path), kSize / 8);
  EXPECT_EQ(sum(), kSize / 4096 * 'x');
}

}  // namespace
}  // namespace thalweg
