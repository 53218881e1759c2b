%% A list summed by a recursion that is not a tail call, processes that send each other numbers, and a map.
-module(field).
-export([shallow/1, deep/1]).

shallow([Rounds]) ->
    [pass(20000 + Round) || Round <- lists:seq(1, list_to_integer(Rounds))],
    halt(0).

pass(Count) ->
    Self = self(),
    Last = lists:foldl(fun(_, To) -> spawn(fun() -> stage(To) end) end, Self, lists:seq(1, 8)),
    spawn(fun() -> [Last ! N || N <- lists:seq(1, Count)] end),
    io:format("~p ~p~n", [receive_all(Count, 0), fib(24)]).

stage(To) ->
    receive N -> To ! weigh(N, 10), stage(To) after 5000 -> ok end.

weigh(N, 0) -> N;
weigh(N, I) -> weigh((N * 31 + I) rem 1000003, I - 1).

receive_all(0, Sum) -> Sum;
receive_all(Left, Sum) -> receive N -> receive_all(Left - 1, Sum + N) end.

fib(N) when N < 2 -> N;
fib(N) -> fib(N - 1) + fib(N - 2).

%% The recursion stays 300,000 frames deep while its leaves work.
deep([Rounds]) ->
    io:format("~p~n", [down(300000, list_to_integer(Rounds))]),
    halt(0).

down(0, Rounds) -> lists:sum([fib(24 + Round rem 2) || Round <- lists:seq(1, Rounds)]);
down(Depth, Rounds) -> 1 + down(Depth - 1, Rounds).
