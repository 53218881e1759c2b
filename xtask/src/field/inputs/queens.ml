(* Queens on a board, by lists: allocation, closures, exceptions. *)
exception Threat

let safe column queens =
  try
    List.iteri (fun i q -> if q = column || abs (q - column) = i + 1 then raise Threat) queens;
    true
  with Threat -> false

let rec place n row queens =
  if row = n then 1
  else
    List.fold_left
      (fun sum column -> if safe column queens then sum + place n (row + 1) (column :: queens) else sum)
      0
      (List.init n Fun.id)

let () = Printf.printf "%d\n" (place (int_of_string Sys.argv.(1)) 0 [])
