#include "common/core/matrix.h"

#include <vector>

#include "common/core/error.h"
#include "tests/catch.h"

using namespace tp;

using Values = std::vector<float>;

TEST_CASE("products of matrices follow the article") {
  // X [1, 2] times W [2, 4], W in the article's orientation.
  const Matrix x(1, 2, {1, 2}), w(2, 4, {1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(multiply(x, w).values == Values{11, 14, 17, 20});
  CHECK(transpose(w).values == Values{1, 5, 2, 6, 3, 7, 4, 8});
  CHECK(transpose(w).rows == 4);
}

TEST_CASE("slices are copies of a range of rows or columns") {
  Matrix m(2, 3, {1, 2, 3, 4, 5, 6});
  const Matrix row = m.rows_in({1, 2}), columns = m.cols_in({1, 3});
  m(1, 1) = 99;
  CHECK(row.values == Values{4, 5, 6});
  CHECK(columns.values == Values{2, 3, 5, 6});
}

TEST_CASE("concat_columns undoes a split by columns") {
  const Matrix m = random_matrix(3, 7, 1);
  CHECK(concat_columns({m.cols_in({0, 2}), m.cols_in({2, 2}), m.cols_in({2, 7})}).values ==
        m.values);
}

TEST_CASE("sums are made element by element and a row is added to every row") {
  const Matrix a(2, 2, {1, 2, 3, 4});
  CHECK(add(a, a).values == Values{2, 4, 6, 8});
  CHECK(add_row(a, Matrix(1, 2, {10, 20})).values == Values{11, 22, 13, 24});
  CHECK(scale(a, -2).values == Values{-2, -4, -6, -8});
}

TEST_CASE("sizes that do not fit are refused with both sides") {
  const Matrix a(2, 3), b(2, 2);
  CHECK_THROWS_WITH(multiply(a, b), ContainsSubstring("3") && ContainsSubstring("2"));
  CHECK_THROWS_WITH(add(a, b), ContainsSubstring("[2, 3]") && ContainsSubstring("[2, 2]"));
  CHECK_THROWS_AS(add_row(a, b), Error);
  CHECK_THROWS_AS(Matrix(2, 3, Values{1, 2}), Error);
}

TEST_CASE("tensors and matrices convert into each other") {
  const Matrix m(1, 2, {1.5f, 257});
  CHECK(to_matrix(to_tensor(m, DType::f32)).values == m.values);
  CHECK(to_matrix(to_tensor(m, DType::bf16)).values == Values{1.5f, 256});  // 257 is a tie
}

TEST_CASE("random matrices depend on the seed alone") {
  CHECK(random_matrix(3, 4, 7).values == random_matrix(3, 4, 7).values);
  CHECK(random_matrix(3, 4, 7).values != random_matrix(3, 4, 8).values);
  bool small = true, whole = true;
  for (const float v : random_matrix(20, 20, 1).values) small = small && v >= -1 && v < 1;
  for (const float v : random_integers(20, 20, 1).values)
    whole = whole && v == static_cast<float>(static_cast<int>(v)) && v >= -4 && v <= 4;
  CHECK(small);
  CHECK(whole);
}

TEST_CASE("a row is shown with bars where the ranks meet") {
  CHECK(format_row(Matrix(1, 4, {11, 14, 17, 20}), {2}) == "[11, 14 | 17, 20]");
}

TEST_CASE("a tensor is read only as what it is") {
  Tensor t = Tensor::on_host({2, 3}, DType::bf16);
  CHECK_THROWS_WITH(t.row<float>(0), ContainsSubstring("bf16") && ContainsSubstring("f32"));
  CHECK(to_matrix(t).values == Values(6, 0));  // new tensors hold zeros
  CHECK_THROWS_AS(copy_host(Matrix(3, 2).view(), t), Error);
}
