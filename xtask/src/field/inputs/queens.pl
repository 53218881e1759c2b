% Queens by backtracking, and a table of facts.
:- use_module(library(main)).
:- use_module(library(aggregate)).
:- initialization(main, main).

main([Size]) :-
    atom_number(Size, N),
    numlist(1, N, Rows),
    aggregate_all(count, queens(Rows, [], _), Count),
    format("~d~n", [Count]).

queens([], Board, Board).
queens(Rows, Placed, Board) :-
    select(Row, Rows, Rest),
    safe(Placed, Row, 1),
    queens(Rest, [Row | Placed], Board).

safe([], _, _).
safe([Other | Placed], Row, Distance) :-
    Row - Other =\= Distance,
    Other - Row =\= Distance,
    Next is Distance + 1,
    safe(Placed, Row, Next).
